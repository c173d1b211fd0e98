// Package soak runs the whole pipeline at a steady rate for as long as wanted, and looks for what
// rises: memory, goroutines, connections, backlog, tables, indexes, dead rows.
//
//	producer's tx → outbox → forwarder → broker ─┬→ inbox, with an effect
//	                                             └→ queue → worker, with an effect
package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/proof/endurance/place"
)

// Config says how long and how much.
type Config struct {
	Duration, Interval time.Duration
	// Rate is messages a second.
	Rate float64
	// Broker is [GoChannel] or [Kafka].
	Broker string
	Out    io.Writer
}

// Validate returns all that is wrong with the configuration.
func (c Config) Validate() error {
	if c.Duration <= 0 || c.Interval <= 0 || c.Rate <= 0 {
		return errors.New("duration, interval and rate must be positive")
	}
	return nil
}

const (
	// connections are enough for all parts of the pipeline to work at a time.
	connections = 24
	// catchUp is how long what was written last may take to come through.
	catchUp = time.Minute
)

// ErrRising is what a run ends with that shows a trend.
var ErrRising = errors.New("the second half of the run shows a rising trend")

// Run runs, prints a line an interval and the result, and returns an error unless all is well.
func Run(ctx context.Context, config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	where, err := place.Open(ctx, connections)
	if err != nil {
		return err
	}
	err = run(ctx, config, where)
	return errors.Join(err, where.Close())
}

func run(ctx context.Context, config Config, where *place.Place) error {
	line, err := startFlow(ctx, config, where)
	if err != nil {
		return err
	}
	watched := &series{}
	started := time.Now()
	err = soak(ctx, config, line, watched)
	took := time.Since(started)
	if err == nil {
		waiting, cancel := context.WithTimeout(ctx, catchUp)
		err = where.AwaitEmpty(waiting)
		cancel()
	}
	err = errors.Join(err, line.close())
	return errors.Join(err, result(ctx, config, where, watched, took))
}

// soak produces and looks, until the time is over.
func soak(ctx context.Context, config Config, line *flow, watched *series) error {
	ctx, cancel := context.WithTimeout(ctx, config.Duration)
	defer cancel()
	working, ctx := errgroup.WithContext(ctx)
	for i := range producers {
		working.Go(func() error {
			return line.orders.Produce(ctx, i, producers, time.Duration(float64(time.Second)*producers/config.Rate))
		})
	}
	working.Go(func() error { return watched.look(ctx, config, line) })
	return working.Wait()
}

// result prints what the run has shown.
func result(ctx context.Context, config Config, where *place.Place, watched *series, took time.Duration) error {
	var sum place.Account
	var problems []error
	for _, consumer := range consumers {
		account, err := where.Account(ctx, consumer)
		if err != nil {
			return err
		}
		if err := account.Fault(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", consumer, err))
		}
		sum = sum.Add(account)
	}
	messages := sum.Committed / int64(len(consumers))
	rising, unjudged := watched.judge()
	if len(rising) > 0 {
		problems = append(problems, fmt.Errorf("%w: %s", ErrRising, list(rising)))
	}
	fmt.Fprintf(config.Out, "RESULT soak minutes=%.1f rate=%.0f messages=%d lost=%d applied_twice=%d out_of_order=%d rising=%s too_short_for=%s\n",
		took.Minutes(), float64(messages)/took.Seconds(), messages, sum.Lost, sum.Twice, sum.Disordered, list(rising), list(unjudged))
	return errors.Join(problems...)
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
