// Observability runs a shop, lets Prometheus scrape its metrics and evaluate the alert rules of
// Postbox, and breaks two things: the broker goes away, and no process handles a queue. Each time
// it asks Prometheus which alerts fire, mends what is broken, and waits until the alerts are over.
//
// Read this file from top to bottom. shop.go is the service, broker.go the broker that can be
// broken. prometheus.go starts Prometheus and asks it, and rules.go lets the rules wait for seconds
// instead of minutes.
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

	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
)

// settings say where things are.
type settings struct {
	pipes.Settings
	// prometheus is the program.
	prometheus string
	// faster is how many times faster than theirs the rules are.
	faster int
}

func main() {
	var s settings
	on := pipes.Flags()
	flag.StringVar(&s.prometheus, "prometheus", "prometheus", "the program, or its path")
	flag.IntVar(&s.faster, "faster", 30, "how many times faster the alert rules are than in production, at most 30")
	flag.Parse()
	s.Settings = *on
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// run returns an error where other alerts fire than those that should.
func run(ctx context.Context, out io.Writer, s settings) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if err := s.check(); err != nil {
		return err
	}
	open, err := s.Open(ctx, prefix)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	shop, err := newShop(open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.close()) }()
	if err := shop.start(ctx); err != nil {
		return err
	}
	monitor, err := startPrometheus(ctx, s, shop.metricsAddress())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, monitor.stop()) }()

	t := &trial{out: out, shop: shop, monitor: monitor}
	if err := shop.selling(ctx, t.run); err != nil {
		return err
	}
	fmt.Fprintf(out, "RESULT incidents=2 fired=%d cleared=%d orders=%d shipped=%d\n", t.fired, t.cleared, shop.sold.Load(), shop.shipped.Load())
	return nil
}

// trial is what happens while the shop sells.
type trial struct {
	out            io.Writer
	shop           *shop
	monitor        *monitor
	fired, cleared int
	open           int // alerts that fire
}

func (t *trial) run(ctx context.Context) error {
	// The thank-you letters have a worker from the beginning, so nothing is wrong.
	worker, err := t.shop.startWorker(ctx)
	if err != nil {
		return err
	}
	if err := t.monitor.waitForMetrics(ctx); err != nil {
		return err
	}
	if err := t.expect(ctx, "All is well"); err != nil {
		return err
	}

	t.shop.broker.down.Store(true)
	if err := t.expect(ctx, "The broker is down", "PostboxCircuitOpen", "PostboxBacklogOld"); err != nil {
		return err
	}
	t.shop.broker.down.Store(false)
	if err := t.expect(ctx, "The broker is back"); err != nil {
		return err
	}

	// A release leaves the worker out.
	if err := worker.Close(); err != nil {
		return err
	}
	if err := t.expect(ctx, "No process handles the letters", "PostboxNoProcess"); err != nil {
		return err
	}
	if worker, err = t.shop.startWorker(ctx); err != nil {
		return err
	}
	return errors.Join(t.expect(ctx, "A worker is there again"), worker.Close())
}

// expect waits until these alerts fire and no others, and prints what they say.
func (t *trial) expect(ctx context.Context, happened string, names ...string) error {
	began := time.Now()
	alerts, err := t.monitor.waitFor(ctx, names)
	if err != nil {
		return fmt.Errorf("%s: %w", happened, err)
	}
	took := time.Since(began).Round(time.Second)
	if len(names) == 0 {
		t.cleared += t.open
		t.open = 0
		fmt.Fprintf(t.out, "%s. After %s no alert fires.\n", happened, took)
		return nil
	}
	t.open = len(alerts)
	t.fired += t.open
	fmt.Fprintf(t.out, "%s. After %s these alerts fire:\n", happened, took)
	for _, a := range alerts {
		fmt.Fprintf(t.out, "  %-8s  %s: %s\n", a.Labels["severity"], a.Labels["alertname"], a.Annotations["summary"])
	}
	return nil
}
