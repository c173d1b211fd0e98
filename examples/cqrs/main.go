// Cqrs is a shop with the CQRS component of Watermill. A command places an order, which is an
// event; a group of handlers takes the payment and adds points, and another handler keeps
// statistics, later and in the order of each customer. Messages come twice, and handlers fail after
// they have written. Yet each order has each of its effects once.
//
// shop.go has the handlers and says how they are added. check.go has what goes wrong, and counts.
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

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/cqrs/contract"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/router"
)

// prefix of the tables, so that the example can share a database with anything.
const prefix = "cqrs_"

func main() {
	settings := pipes.Flags()
	marshaler := flag.String("marshaler", "json", "json or protobuf")
	orders := flag.Int("orders", 200, "orders to place")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *settings, *marshaler, *orders); err != nil {
		fmt.Fprintln(os.Stderr, "cqrs:", err)
		os.Exit(1)
	}
}

var marshalers = map[string]cqrs.CommandEventMarshaler{
	"json":     cqrs.JSONMarshaler{GenerateName: cqrs.StructName},
	"protobuf": cqrs.ProtoMarshaler{GenerateName: cqrs.StructName},
}

func run(ctx context.Context, out io.Writer, settings pipes.Settings, marshaler string, orders int) (err error) {
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
	database := open.Tables(prefix)
	store, err := inboxstore.New(database, inboxstore.Config{}, open.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	outbox, err := forwarder.NewPublisher(database, forwarder.PublisherConfig{}, open.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = outbox.Close() }()
	r, err := router.New(nil, router.Config{Store: store, Outbox: outbox}, open.Logger)
	if err != nil {
		return err
	}
	trouble := &trouble{Publisher: open.Publisher}
	r.Router().AddMiddleware(trouble.count)
	shop := &shop{pipes: open, store: store, router: r, marshaler: marshalers[marshaler], trouble: trouble}
	if shop.marshaler == nil {
		return fmt.Errorf("marshaler %q is neither json nor protobuf", marshaler)
	}
	if err := errors.Join(shop.makeBuses(outbox), shop.addCommands(), shop.addGroup(), shop.addStatistics()); err != nil {
		return err
	}
	if _, err := r.AddForwarder(database, trouble, forwarder.Config{Classify: open.Classify, BatchSize: open.BatchSize}); err != nil {
		return err
	}

	running, runningCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return r.Run(context.WithoutCancel(runningCtx)) })
	running.Go(func() error {
		<-r.Running()
		err := shop.placeOrders(runningCtx, orders)
		if err == nil {
			err = trouble.waitUntilQuiet(runningCtx, open.DB)
		}
		return errors.Join(err, r.Close())
	})
	if err := running.Wait(); err != nil {
		return err
	}
	return verify(ctx, out, open.DB, trouble)
}

const customers = 10

// placeOrders sends commands. Those of a customer are handled in their order.
func (s *shop) placeOrders(ctx context.Context, orders int) error {
	start := postbox.NewMessageID() // later runs have later ids
	for n := range orders {
		command := &contract.PlaceOrder{
			OrderId: fmt.Sprintf("%s-%06d", start, n), Customer: fmt.Sprintf("customer %d", n%customers), Cents: int64(n),
		}
		if err := s.place(ctx, command); err != nil {
			return fmt.Errorf("send a command: %w", err)
		}
	}
	return nil
}
