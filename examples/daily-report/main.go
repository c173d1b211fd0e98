// Daily-report makes the financial report of a shop, each day at midnight. Sales come in all day
// and are only stored; at midnight a batch handler gets all that was stored until then. Midnight
// comes every three seconds here.
//
// Read this file from top to bottom, and then report.go, the handler. tills.go sells, demo.go lets
// some days pass, post.go delivers sales several times, and check.go compares the reports with the
// sales.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/router"
)

// settings are where things are, when days end, and how much to do.
type settings struct {
	pipes.Settings
	schedule string
	timeZone string
	sales    int
	size     int
}

func main() {
	var s settings
	on := pipes.Flags()
	flag.StringVar(&s.schedule, "schedule", "*/3 * * * * *", `when a day ends; a real shop has "0 0 * * *"`)
	flag.StringVar(&s.timeZone, "time-zone", "Europe/Berlin", "of the schedule")
	flag.IntVar(&s.sales, "sales", 60, "sales a day")
	flag.IntVar(&s.size, "size", 25, "the most sales of a batch")
	flag.Parse()
	s.Settings = *on
	if err := run(context.Background(), os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "daily-report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, s settings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	days, err := newCalendar(s.schedule, s.timeZone)
	if err != nil {
		return err
	}
	p, err := s.Open(ctx, prefix)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	if _, err := p.DB.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	operator, err := admin.New(p.Tables(prefix), admin.Config{}, p.Logger)
	if err != nil {
		return err
	}
	shop := &app{Pipes: p, settings: s, calendar: days, out: out, post: newPost(p.Publisher), operator: operator}
	if err := shop.liveThroughDays(ctx); err != nil {
		return err
	}
	return shop.verify(ctx)
}

// prefix of the tables, so that the example can share a database with anything.
const prefix = "daily_report_"

const (
	salesTopic = "sales"
	queueName  = "daily-report"
)

// app is the shop: what the service and the tills share.
type app struct {
	*pipes.Pipes
	settings
	calendar

	out      io.Writer
	post     *post
	operator *admin.Admin // to look into the outbox and the queue

	restarted time.Time // when the service was started again after the midnight that it missed
}

// service makes the reports.
type service struct {
	router    *router.Router
	store     *inboxstore.Store
	forwarder *forwarder.Forwarder
	ended     chan error
}

// startService starts what would be a process of its own.
func (a *app) startService(ctx context.Context) (*service, error) {
	store, err := inboxstore.New(a.Tables(prefix), inboxstore.Config{}, a.Logger)
	if err != nil {
		return nil, err
	}
	r, err := router.New(nil, router.Config{Store: store}, a.Logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := a.NewSubscriber("daily-report", salesTopic)
	if err != nil {
		return nil, err
	}
	r.Router().AddMiddleware(a.post.noteDelivery)
	// A sale is stored in a queue as soon as it comes, and acked. At each time of the schedule the
	// handler gets what was stored until then, in batches: one batch of a whole day would be one
	// large transaction.
	_, err = r.AddBatchHandler(queueName, salesTopic, subscriber, a.makeReport, router.BatchConfig{
		Batch: queue.BatchConfig{
			Schedule: a.schedule, TimeZone: a.zone, Size: a.size,
			Worker: queue.Config{
				// What the handler writes commits together with the end of the sales that it was
				// given.
				Transactional: true,
				// The pause is short, because days are. Left out, it is 15 attempts and pauses of
				// up to a minute.
				Retry: postbox.RetryProfile{Attempts: 2, Base: 50 * time.Millisecond, Cap: 50 * time.Millisecond},
				// For the check at the end: a sale that is done stays for a year, with the time at
				// which it was stored.
				History: 365 * 24 * time.Hour,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	// The forwarder takes sales from the tills' outbox to the broker. It starts after the
	// subscription and ends before it, since a GoChannel forgets what finds no subscriber; with
	// RabbitMQ or Kafka it could run wherever the tills are.
	fwd, err := forwarder.New(a.Tables(prefix), a.post, forwarder.Config{
		Classify: a.Classify, BatchSize: a.BatchSize,
	}, a.Logger)
	if err != nil {
		return nil, err
	}
	s := &service{router: r, store: store, forwarder: fwd, ended: make(chan error, 2)}
	go func() { s.ended <- r.Run(context.WithoutCancel(ctx)) }() // stop ends it, in the right order
	select {
	case <-r.Running():
	case err := <-s.ended:
		return nil, cmp.Or(err, errors.New("the router has stopped"))
	}
	go func() { s.ended <- fwd.Run(ctx) }()
	return s, nil
}

// stop stops the service: what it works on comes to its end first.
func (s *service) stop() error {
	return errors.Join(s.forwarder.Close(), s.router.Close(), <-s.ended, <-s.ended, s.store.Close())
}
