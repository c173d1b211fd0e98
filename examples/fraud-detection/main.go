// Fraud-detection is three services in one process that talk by events and by nothing else: users,
// products and orders. When a user turns suspect, the orders service shall ask an external fraud
// check about that user and review the user's active orders. The check is slow, fails at times and
// is away for a while, so the service does not ask when the event arrives: it defers the event to a
// queue, and acks.
//
// Read users.go, products.go and orders.go, which are the services; review in orders.go is what
// this is about. service.go is what each of them is made of, fraudcheck.go the external service,
// traffic.go makes the users busy and the broker deliver twice, check.go counts in the database
// what came of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
)

// plan says how much traffic there is.
type plan struct{ users, suspects, products, orders int }

func main() {
	var p plan
	settings := pipes.Flags()
	flag.IntVar(&p.users, "users", 40, "users to create")
	flag.IntVar(&p.suspects, "suspects", 12, "users who turn suspect")
	flag.IntVar(&p.products, "products", 8, "products to create")
	flag.IntVar(&p.orders, "orders", 400, "orders that the users try to place")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *settings, p); err != nil {
		fmt.Fprintln(os.Stderr, "fraud-detection:", err)
		os.Exit(1)
	}
}

// shop is the three services and what is around them.
type shop struct {
	users    *users
	products *products
	orders   *orders
	bus      *noisyBus
	check    *fraudCheck

	placed, refused atomic.Int64 // orders
}

// run runs the demo, and returns an error where the books do not add up at its end.
func run(ctx context.Context, out io.Writer, settings pipes.Settings, p plan) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	open, err := settings.Open(ctx, prefixOf("users"), prefixOf("products"), prefixOf("orders"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.Close()) }()
	if _, err := open.DB.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("make tables: %w", err)
	}
	s, err := newShop(open)
	if err != nil {
		return err
	}
	if err := s.during(ctx, func(ctx context.Context) error { return s.demo(ctx, out, p) }); err != nil {
		return err
	}
	return s.verify(ctx, out, open.DB)
}

func newShop(p *pipes.Pipes) (*shop, error) {
	s := &shop{bus: newNoisyBus(p.Publisher), check: newFraudCheck()}
	var problems [3]error
	s.users, problems[0] = newUsers(p, s.bus)
	s.products, problems[1] = newProducts(p, s.bus)
	s.orders, problems[2] = newOrders(p, s.bus, s.check)
	return s, errors.Join(problems[:]...)
}

func (s *shop) services() []*service {
	return []*service{s.users.service, s.products.service, s.orders.service}
}

// during runs the services as long as work lasts. Forwarders start when everybody has subscribed,
// and stop before: GoChannel forgets what nobody hears. Other brokers do not mind.
func (s *shop) during(ctx context.Context, work func(ctx context.Context) error) (err error) {
	for _, own := range s.services() {
		defer func() { err = errors.Join(err, own.close()) }()
		if err := own.start(ctx); err != nil {
			return err
		}
	}
	running, ctx := errgroup.WithContext(ctx)
	for _, own := range s.services() {
		running.Go(func() error { return own.forwarder.Run(ctx) })
	}
	running.Go(func() error {
		err := work(ctx)
		for _, own := range s.services() {
			err = errors.Join(err, own.forwarder.Close())
		}
		return err
	})
	return running.Wait()
}

// demo is what happens in the shop.
func (s *shop) demo(ctx context.Context, out io.Writer, p plan) error {
	if err := s.traffic(ctx, p); err != nil {
		return err
	}
	if err := s.waitUntilQuiet(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders were placed while %d users turned suspect, and %d refused.\n",
		s.placed.Load(), p.suspects, s.refused.Load())
	asked, busy, away := s.check.counts()
	fmt.Fprintf(out, "The fraud check was asked %d times. It was busy %d times, and away %d times.\n", asked, busy, away)

	// The file of one user is damaged. That event failed as often as it may, and no other did.
	letters, _, err := s.orders.admin.DeadLetters(ctx, admin.Filter{})
	if err != nil {
		return err
	}
	for _, letter := range letters {
		fmt.Fprintf(out, "Dead letter %d about %s after %d attempts: %s\n", letter.ID, letter.Key, letter.Attempts, letter.Error)
		if !isDamaged(letter.Key) {
			return errors.New("that event should not have died")
		}
	}
	if len(letters) == 0 {
		return errors.New("the event about the user with the damaged file is no dead letter")
	}

	// Somebody repairs the file, and an operator gives the event another turn.
	s.check.repair()
	requeued, err := s.orders.admin.Requeue(ctx, admin.Filter{All: true}, admin.Again{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The file is repaired, dead letters requeued: %d\n", requeued)
	return s.waitUntilQuiet(ctx)
}
