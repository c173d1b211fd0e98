// Migrate-from-a-table changes an application with an outbox of its own, a table that it has made
// itself, over to Postbox while it runs, then back again, and then over for good. Four producers
// take orders all the time and change one by one. No event is lost, none has its effect twice, and
// the events of each customer stay in order.
//
// Read this file from top to bottom, and then move.go, which is the only code that the change
// needs. old.go is what goes away, shop.go has the producers, consumer.go the listener, and
// check.go the queries that verify the claim.
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

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

func main() {
	settings := pipes.Flags()
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *settings); err != nil {
		fmt.Fprintln(os.Stderr, "migrate-from-a-table:", err)
		os.Exit(1)
	}
}

// prefix of all tables, so that the example can share a database with anything.
const prefix = "from_table_"

func run(ctx context.Context, out io.Writer, settings pipes.Settings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	p, err := settings.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	// A topic of its own for each run: what an earlier run has left on a broker is of no use.
	topic := "orders." + postbox.NewMessageID()
	subscriber, err := p.NewSubscriber("invoices", topic)
	if err != nil {
		return err
	}
	return application{
		tables: p.Tables(prefix), broker: p.Publisher, subscriber: subscriber, topic: topic, classify: p.Classify, logger: p.Logger, out: out,
	}.run(ctx)
}

// application is what does not change: the database, a broker, and a topic on it.
type application struct {
	tables     postbox.Database // those of Postbox
	broker     message.Publisher
	subscriber message.Subscriber
	topic      string
	classify   func(error) postbox.ErrorClass
	logger     watermill.LoggerAdapter
	out        io.Writer
}

// run makes the old world, lets the change happen in it, and verifies the outcome.
func (a application) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	s, err := a.newShop(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.outbox.Close()) }()
	listener, err := s.startConsumer(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(s.tell(ctx), listener.close()); err != nil {
		return err
	}
	return s.verify(ctx)
}

// tell is the story: the change, the way back, and the change for good. Orders are placed all the
// time.
func (s *shop) tell(ctx context.Context) error {
	// How it was: producers write rows to a table of their own, and a relay publishes them.
	relay := s.startRelay(ctx)
	if err := s.startProducers(ctx); err != nil {
		return err
	}
	err := s.wait(ctx, "the relay publishes the rows of 4 producers")

	// Step 2: the relay ends, here by a crash, and the mover and the forwarder take its place.
	err = errors.Join(err, relay.kill())
	post, startErr := s.startPost(ctx)
	if err := errors.Join(err, startErr); err != nil {
		return errors.Join(err, s.stopProducers())
	}
	err = s.wait(ctx, "the mover hands the rows over to the outbox")

	// Step 3, and back again: no process of the new kind is left in the end.
	err = errors.Join(err, s.switchProducers(ctx, switching), s.switchProducers(ctx, old), post.stopMover())
	err = errors.Join(err, s.waitForEmptyOutbox(ctx), post.stopForwarder())
	relay = s.startRelay(ctx)
	err = errors.Join(err, s.wait(ctx, "all is as it was: the relay publishes again"))

	// The same once more, for good.
	err = errors.Join(err, relay.stop())
	post, startErr = s.startPost(ctx)
	if err := errors.Join(err, startErr); err != nil {
		return errors.Join(err, s.stopProducers())
	}
	err = errors.Join(err, s.switchProducers(ctx, switching))

	// Step 4: no producer writes to the old table any more, so the mover ends when it is empty, and
	// producers need not look there.
	err = errors.Join(err, s.waitForEmptyTable(ctx), post.stopMover(), s.switchProducers(ctx, changed))
	return errors.Join(err, s.stopProducers(), s.waitForEmptyOutbox(ctx), post.stopForwarder(), s.waitForInvoices(ctx))
}

// post is what takes the place of the relay.
type post struct{ mover, forwarder *worker }

func (p post) stopMover() error     { return p.mover.stop() }
func (p post) stopForwarder() error { return p.forwarder.stop() }

func (s *shop) startPost(ctx context.Context) (post, error) {
	fwd, err := forwarder.New(s.tables, s.broker, forwarder.Config{Classify: s.classify}, s.logger)
	if err != nil {
		return post{}, err
	}
	m := mover{db: s.db, table: s.table, outbox: s.outbox}
	return post{mover: start(ctx, m.run), forwarder: start(ctx, fwd.Run)}, nil
}

// worker is a function that runs until it is stopped.
type worker struct {
	cancel context.CancelFunc
	ended  chan error
}

func start(ctx context.Context, run func(context.Context) error) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{cancel: cancel, ended: make(chan error, 1)}
	go func() { w.ended <- run(ctx) }()
	return w
}

// stop ends the function and waits for it.
func (w *worker) stop() error {
	w.cancel()
	return <-w.ended
}
