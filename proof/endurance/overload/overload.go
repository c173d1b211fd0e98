// Package overload gives an outbox and a queue ten times as much as they can handle, and then lets
// them recover. However large the backlog, memory stays within what the configuration allows;
// nothing is lost, nothing is applied twice, and each key keeps its order.
//
// Capacity is measured first, with slow handling. In the recovery handling is quick again: it is
// what one waits for after a neighbour was slow.
package overload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

// Config says how long.
type Config struct {
	// Duration of each overload.
	Duration time.Duration
	Out      io.Writer
}

const (
	connections = 24
	// factor is how many times the capacity is offered. A machine that has much else to do may not
	// get so far; up to leastFactor it is no overload.
	factor, leastFactor = 10, 1
	// measured is the part of the duration in which capacity is measured.
	measured = 6
	// catchUp is how long the recovery may take, also on a machine that has much else to do.
	catchUp = 5 * time.Minute
)

// Run goes through all scenarios, prints a line for each, and returns what went wrong.
func Run(ctx context.Context, config Config) error {
	if config.Duration <= 0 {
		return errors.New("duration must be positive")
	}
	var problems []error
	for _, s := range scenarios {
		if err := runScenario(ctx, config, s); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return errors.Join(problems...)
}

func runScenario(ctx context.Context, config Config, s scenario) error {
	where, err := place.Open(ctx, connections)
	if err != nil {
		return err
	}
	r := &run{scenario: s, config: config, where: where, gate: newGate(s.delay)}
	err = r.run(ctx)
	return errors.Join(err, where.Close())
}

// run is a scenario under way.
type run struct {
	scenario scenario
	config   Config
	where    *place.Place
	gate     *gate
	load     load

	written atomic.Int64
	report  report
}

// load is what is overloaded.
type load interface {
	// write commits the next messages of a writer and returns how many.
	write(ctx context.Context, writer int) (int, error)
	// account says what became of them, when all are through.
	account(ctx context.Context) (place.Account, error)
	close() error
}

// report is the line that a scenario prints.
type report struct {
	capacity, factor float64
	backlog          int64
	caughtUp         time.Duration
	bound, peak      int64
}

func (r *run) run(ctx context.Context) error {
	heap := watchHeap()
	err := r.start()
	if err == nil {
		err = r.phases(ctx)
	}
	if r.load != nil {
		r.gate.open()
		err = errors.Join(err, r.load.close())
	}
	r.report.peak, r.report.bound = heap.stop(), r.scenario.bound()
	if err != nil {
		return err
	}
	return r.judge(ctx)
}

func (r *run) start() (err error) {
	if r.scenario.queue {
		r.load, err = startQueue(r.where, r.scenario, r.gate)
	} else {
		r.load, err = startOutbox(r.where, r.scenario, r.gate)
	}
	return err
}

func (r *run) phases(ctx context.Context) error {
	if r.scenario.backlog > 0 {
		if err := r.write(ctx, 0, r.scenario.backlog); err != nil {
			return fmt.Errorf("write the backlog: %w", err)
		}
	} else if err := r.overload(ctx); err != nil {
		return err
	}
	r.report.backlog = r.written.Load() - r.gate.handled.Load()
	r.gate.open()
	relieved := time.Now()
	waiting, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := r.where.AwaitEmpty(waiting); err != nil {
		return err
	}
	r.report.caughtUp = time.Since(relieved)
	return nil
}

// overload writes ten times the capacity, for the duration.
func (r *run) overload(ctx context.Context) error {
	if err := r.measure(ctx); err != nil {
		return fmt.Errorf("measure the capacity: %w", err)
	}
	rate := factor * r.report.capacity
	started := time.Now()
	before := r.written.Load()
	if err := r.write(ctx, rate, int64(rate*r.config.Duration.Seconds())); err != nil {
		return fmt.Errorf("overload: %w", err)
	}
	r.report.factor = float64(r.written.Load()-before) / time.Since(started).Seconds() / r.report.capacity
	return nil
}

// measure finds the capacity: more than can be handled waits, for as long as is measured.
func (r *run) measure(ctx context.Context) error {
	span := r.config.Duration / measured
	enough := 2 * int64(span/r.scenario.delay+1) * int64(r.scenario.workers)
	if err := r.write(ctx, 0, enough); err != nil {
		return err
	}
	before := r.gate.handled.Load()
	started := time.Now()
	over := time.NewTimer(span)
	defer over.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-over.C:
	}
	handled := r.gate.handled.Load() - before
	if handled == 0 {
		return errors.New("nothing was handled")
	}
	r.report.capacity = float64(handled) / time.Since(started).Seconds()
	return nil
}

// write lets all writers write so many messages, at a rate or, where that is 0, as fast as they
// can. Deliveries are not paced: all of them wait for their commit all the time.
func (r *run) write(ctx context.Context, rate float64, messages int64) error {
	writing, ctx := errgroup.WithContext(ctx)
	started := time.Now()
	var begun atomic.Int64
	for i := range r.scenario.writers {
		writing.Go(func() error {
			for ctx.Err() == nil {
				position := begun.Add(int64(r.scenario.perTx))
				if position > messages+int64(r.scenario.perTx)-1 {
					return nil
				}
				if rate > 0 && !r.scenario.queue {
					waitUntil(ctx, started.Add(time.Duration(float64(position)/rate*float64(time.Second))))
				}
				n, err := r.load.write(ctx, i)
				if err != nil {
					return err
				}
				r.written.Add(int64(n))
			}
			return ctx.Err()
		})
	}
	return writing.Wait()
}

func waitUntil(ctx context.Context, at time.Time) {
	due := time.NewTimer(time.Until(at))
	defer due.Stop()
	select {
	case <-ctx.Done():
	case <-due.C:
	}
}

// judge prints the result and says what is wrong with it.
func (r *run) judge(ctx context.Context) error {
	account, err := r.load.account(ctx)
	if err != nil {
		return err
	}
	const mebi = 1 << 20
	fmt.Fprintf(r.config.Out,
		"RESULT overload scenario=%s messages=%d capacity=%.0f/s factor=%.1f backlog=%d backlog_mib=%d caught_up=%s heap_peak_mib=%.1f heap_bound_mib=%.1f at_once=%d lost=%d applied_twice=%d out_of_order=%d\n",
		r.scenario.name, account.Committed, r.report.capacity, r.report.factor, r.report.backlog,
		r.report.backlog*int64(r.scenario.payload)/mebi, r.report.caughtUp.Round(time.Millisecond),
		float64(r.report.peak)/mebi, float64(r.report.bound)/mebi, r.gate.most.Load(), account.Lost, account.Twice, account.Disordered)
	problems := []error{account.Fault()}
	if r.report.peak > r.report.bound {
		problems = append(problems, fmt.Errorf("the live heap grew by %d bytes, and the configuration allows %d", r.report.peak, r.report.bound))
	}
	if most := r.gate.most.Load(); most > int64(r.scenario.workers) {
		problems = append(problems, fmt.Errorf("%d messages were handled at a time, and the configuration allows %d", most, r.scenario.workers))
	}
	if r.scenario.backlog == 0 && r.report.factor <= leastFactor {
		problems = append(problems, fmt.Errorf("the machine offered only %.1f times the capacity: run it where there is more room", r.report.factor))
	}
	return errors.Join(problems...)
}
