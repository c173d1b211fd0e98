// Reward-points keeps the points of users, who buy, bring back and get a bonus. Order matters: a
// bonus of ten per cent before a purchase is not one after it. Activities come from many users at
// the same time, they come twice, handlers fail and are tried again, and a worker is replaced while
// all that goes on. In the end each account is what it would be if the activities of its user had
// been applied one by one, in the order in which they were committed.
//
// rules.go says what an activity does to an account. shop.go records activities, and worker.go
// applies them. trouble.go is what goes wrong, and check.go counts in the database what came of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// plan says how much happens.
type plan struct{ users, activities int }

// prefix of the tables, so that the example can share a database with anything.
const prefix = "rewards_"

func main() {
	var p plan
	settings := pipes.Flags()
	flag.IntVar(&p.users, "users", 25, "users to add")
	flag.IntVar(&p.activities, "activities", 800, "purchases, refunds and bonuses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *settings, p); err != nil {
		fmt.Fprintln(os.Stderr, "reward-points:", err)
		os.Exit(1)
	}
}

// demo is the shop, the workers, and what is between them.
type demo struct {
	plan      plan
	pipes     *pipes.Pipes
	shop      shop
	bus       *noisyBus
	forwarder *forwarder.Forwarder
	admin     *admin.Admin
	mishap    *mishap
	workers   []*worker
}

// run runs the demo, and returns an error where the books do not add up at its end.
func run(ctx context.Context, out io.Writer, settings pipes.Settings, p plan) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	open, err := settings.Open(ctx, prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	if _, err := open.DB.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}

	// The shop publishes to the outbox, which is a table. The forwarder takes events from there to
	// the broker.
	outbox, err := forwarder.NewPublisher(open.Tables(prefix), forwarder.PublisherConfig{}, open.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outbox.Close()) }()
	bus := &noisyBus{Publisher: open.Publisher}
	fwd, err := forwarder.New(open.Tables(prefix), bus, forwarder.Config{
		Classify: open.Classify, BatchSize: open.BatchSize,
	}, open.Logger)
	if err != nil {
		return err
	}

	operator, err := admin.New(open.Tables(prefix), admin.Config{}, open.Logger)
	if err != nil {
		return err
	}
	d := &demo{
		plan: p, pipes: open, shop: shop{db: open.DB, outbox: outbox}, bus: bus, forwarder: fwd, admin: operator,
		mishap: newMishap(p.activities / 2),
	}
	if err := d.run(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d activities of %d users were recorded, %d events came twice.\n", p.activities, p.users, bus.again.Load())
	for _, w := range d.workers {
		fmt.Fprintf(out, "The %s worker applied %d.\n", w.name, w.applied.Load())
	}
	fmt.Fprintf(out, "Handlers failed %d times. Meanwhile others went on: %d activities on average until the one that failed was applied.\n",
		d.mishap.failures, d.mishap.meanwhile/max(len(d.mishap.failedAt), 1))
	return d.verify(ctx, out)
}

// run returns when all activities are recorded and applied.
func (d *demo) run(ctx context.Context) (err error) {
	defer func() {
		for _, w := range d.workers {
			err = errors.Join(err, w.stop())
		}
	}()
	if err := errors.Join(d.startWorker(ctx, "first"), d.startWorker(ctx, "second")); err != nil {
		return err
	}
	// The forwarder starts after the workers have subscribed, and stops before they do: GoChannel
	// forgets what nobody hears. Other brokers do not mind.
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return d.forwarder.Run(ctx) })
	running.Go(func() error { return errors.Join(d.work(ctx), d.forwarder.Close()) })
	return running.Wait()
}

// work lets the users be busy. When half of what they do is applied, a third worker replaces the
// first.
func (d *demo) work(ctx context.Context) error {
	done := make(chan struct{})
	busy, ctx := errgroup.WithContext(ctx)
	busy.Go(func() error {
		defer close(done)
		if err := d.shop.serve(ctx, d.plan); err != nil {
			return err
		}
		return d.waitUntilQuiet(ctx)
	})
	busy.Go(func() error {
		select {
		case <-d.mishap.halfway:
			return errors.Join(d.workers[0].stop(), d.startWorker(ctx, "third"))
		case <-done:
			return nil
		}
	})
	return busy.Wait()
}

func (d *demo) startWorker(ctx context.Context, name string) error {
	w, err := startWorker(ctx, name, d.pipes, d.bus, d.mishap)
	if err != nil {
		return fmt.Errorf("start the %s worker: %w", name, err)
	}
	d.workers = append(d.workers, w)
	return nil
}
