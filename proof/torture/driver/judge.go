package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

const (
	// memoryBound is what a process may occupy (G8): twice of what it does when nothing is broken
	// and all its connections are busy.
	memoryBound = 256 << 20
	// clockBound is how far a stored time may be outside of the run: less than any clock is off.
	clockBound = 10 * time.Minute
)

// heal undoes everything, lets the producers stop, and waits until all is through. It returns how
// long that took.
func (r *run) heal(ctx context.Context) (time.Duration, error) {
	undone := make(chan struct{})
	go func() { r.faulting.Wait(); close(undone) }()
	r.say("the faults end; undoing those under way")
	select {
	case <-undone:
	case <-ctx.Done():
		return 0, errors.New("interrupted")
	}
	var stopping sync.WaitGroup
	for _, p := range r.processes {
		stopping.Go(func() { r.relieve(p) })
	}
	stopping.Wait()
	operator, err := admin.New(postbox.Database{DB: r.db, Dialect: postbox.PostgreSQL}, admin.Config{}, nil)
	if err != nil {
		return 0, err
	}
	// The operator may have been killed between a pause and its end.
	if err := role.Resume(ctx, operator); err != nil {
		return 0, err
	}
	healed := time.Now()
	r.say("all is healed, and nothing more is produced; waiting until everything is through, for %s at most", r.CatchUp)
	for {
		waiting, err := r.waiting(ctx, operator)
		if err != nil {
			return 0, err
		}
		if waiting == "" {
			took := time.Since(healed)
			r.say("caught up after %.1f s", took.Seconds())
			return took, nil
		}
		if time.Since(healed) > r.CatchUp {
			r.say("not caught up: %s", waiting)
			return checker.NeverCaughtUp, nil
		}
		if !wait(ctx, respite) {
			return 0, errors.New("interrupted")
		}
	}
}

// relieve stops what makes new messages, and gives back a pool that was taken away. Clocks stay as
// they are.
func (r *run) relieve(p *process) {
	switch p.config.Role {
	case role.Producer, role.Operator:
		if err := p.retire(); err != nil {
			r.violate(fmt.Errorf("G12: %w", err))
		}
	default:
		if clock, pool := p.changes(); pool > 0 {
			p.change(clock, 0)
			_ = r.restart(p) // it is a violation already
		}
	}
}

// waiting says what has not been handled and is not dead, "" if there is nothing.
func (r *run) waiting(ctx context.Context, operator *admin.Admin) (string, error) {
	letters, err := deadLetters(ctx, operator)
	if err != nil {
		return "", err
	}
	dead := map[string]map[string]bool{} // by message: the flows in which it is dead
	for _, letter := range letters {
		if dead[letter.MessageID] == nil {
			dead[letter.MessageID] = map[string]bool{}
		}
		dead[letter.MessageID][role.ConsumerOf(letter)] = true
	}
	lost := sync.OnceValues(r.lost) // it reads all histories
	var waiting []string
	for _, flow := range ledger.Flows {
		ids, err := ledger.Waiting(ctx, r.db, flow)
		if err != nil {
			return "", err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return dead[id][flow.Consumer] || dead[id][""] })
		if len(ids) > 0 {
			isLost, err := lost()
			if err != nil {
				return "", err
			}
			ids = slices.DeleteFunc(ids, func(id string) bool { return isLost(flow.Consumer, id) })
		}
		if len(ids) > 0 {
			waiting = append(waiting, fmt.Sprintf("%s has not handled %d messages, such as %s", flow.Consumer, len(ids), ids[0]))
		}
	}
	pending, _, err := r.counts(ctx)
	if err != nil {
		return "", err
	}
	if pending > 0 {
		waiting = append(waiting, fmt.Sprintf("%d are pending", pending))
	}
	return strings.Join(waiting, "; "), nil
}

// judge stops the processes, reads what is left, and says what it thinks of it.
func (r *run) judge(ctx context.Context, caughtUp time.Duration) error {
	var stopping sync.WaitGroup
	for _, p := range r.processes {
		if p.config.Role != role.Producer && p.config.Role != role.Operator {
			stopping.Go(func() {
				if err := p.retire(); err != nil {
					r.violate(fmt.Errorf("G12: %w", err))
				}
			})
		}
	}
	stopping.Wait()
	evidence, err := r.witnesses()
	if err != nil {
		return err
	}
	evidence.OutboxKeptSince, evidence.CaughtUp, evidence.Memory = r.keptSince, caughtUp, r.memory
	evidence.Skew = map[string]time.Duration{}
	evidence.Bounds = checker.Bounds{CatchUp: r.CatchUp, Memory: memoryBound, Clock: clockBound}
	for name, p := range r.processes {
		if clock, _ := p.changes(); clock != 0 {
			evidence.Skew[name] = clock
		}
	}
	if evidence.Database, err = checker.ReadDatabase(ctx, r.db); err != nil {
		return err
	}
	return r.report(checker.Check(evidence), caughtUp)
}

func (r *run) report(report checker.Report, caughtUp time.Duration) error {
	var kinds []string
	for _, kind := range schedule.Kinds() {
		if n := r.faults[kind]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, n))
		}
	}
	largest := map[role.Role]int64{}
	for _, sample := range r.memory {
		as := r.processes[sample.Process].config.Role
		largest[as] = max(largest[as], sample.Bytes>>20)
	}
	r.say("\nfaults: %s", strings.Join(kinds, ", "))
	r.say("processes that ended by themselves: %d; largest, in MiB: %v", r.surprises, largest)
	if caughtUp >= 0 {
		r.say("time to catch up: %.1f s", caughtUp.Seconds())
	}
	r.say("%s", report)
	c := report.Counts
	if r.cluster != nil && c.Tailed == 0 {
		r.fail(errors.New("no message came through the log of the database, so the run shows nothing about it"))
	}
	for _, err := range r.violations {
		r.say("VIOLATION %s", err)
	}
	r.say("RESULT intents=%d applied=%d lost=%d applied_twice=%d order_violations=%d other_violations=%d faults=%d seed=%d",
		c.Intents, c.Applied, c.Lost, c.AppliedTwice, c.OrderViolations, r.others(report), r.count(), r.Seed)
	if !report.OK() || len(r.violations) > 0 {
		return errors.New("there are violations")
	}
	return nil
}

// others counts the violations that have no place of their own in the last line.
func (r *run) others(report checker.Report) int {
	n := len(r.violations) - report.Counts.Lost - report.Counts.AppliedTwice - report.Counts.OrderViolations
	for _, total := range report.Total {
		n += total
	}
	return n
}

func (r *run) count() (n int) {
	for _, faults := range r.faults {
		n += faults
	}
	return n
}
