// Payments takes commands to pay, debits accounts and sends receipts. Each command is delivered
// several times, to two tellers at once; tellers fail after they have written; receipts are
// published twice. Yet each command makes one payment, and each payment one receipt.
//
// Read this file from top to bottom. accounts.go has the accounts and places commands, sabotage.go
// makes things go wrong, demo.go tells the story, in which an operator deals with dead letters, and
// check.go compares the books.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/router"
)

// settings are where things are, and how much to do.
type settings struct {
	pipes.Settings
	commands int
}

func main() {
	var s settings
	on := pipes.Flags()
	flag.IntVar(&s.commands, "commands", 120, "commands to place")
	flag.Parse()
	s.Settings = *on
	if err := run(context.Background(), os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "payments:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, s settings) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
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
	publisher, err := forwarder.NewPublisher(p.Tables(prefix), forwarder.PublisherConfig{}, p.Logger)
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	b := &bank{Pipes: p, out: out, publisher: publisher, operator: operator, post: newPost(p.Publisher)}
	if err := b.tell(ctx, s.commands); err != nil {
		return err
	}
	return b.verify(ctx)
}

// prefix of the tables, so that the example can share a database with anything.
const prefix = "payments_"

const (
	commandsTopic = "payments.commands"
	receiptsTopic = "payments.receipts"
)

// outbox is where commands and receipts wait for the forwarder.
var outbox = admin.Outbox("outbox")

// soon has short pauses for a short demo. Left out, they grow from a second to a minute.
var soon = postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond}

// bank is what all parts share.
type bank struct {
	*pipes.Pipes

	out       io.Writer
	publisher *forwarder.Publisher // to the outbox
	operator  *admin.Admin
	post      *post // from the outbox
	totals    totals
}

// payment is what the command says, and the receipt too.
type payment struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// pay handles a command. All that it does is in the transaction of the inbox: the debit, the
// payment, the receipt that it returns, which goes to the outbox, and the note that the command is
// handled.
func pay(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	var order payment
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, postbox.Permanent(err)
	}
	debit, err := tx.ExecContext(ctx, "UPDATE payments_accounts SET cents = cents - $1 WHERE name = $2 AND cents >= $1",
		order.Cents, order.Account)
	if err != nil {
		return nil, err
	}
	if debited, err := debit.RowsAffected(); err != nil {
		return nil, err
	} else if debited == 0 {
		// No retry can help, so it becomes a dead letter at once, and an operator will decide.
		return nil, postbox.Permanent(fmt.Errorf("%s has less than %d cents", order.Account, order.Cents))
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO payments_payments (command_id, account, cents) VALUES ($1, $2, $3)",
		order.ID, order.Account, order.Cents)
	if err != nil {
		return nil, err
	}
	// The receipt gets its id here. However often it is published, it is the same receipt.
	return []*message.Message{message.NewMessage(postbox.NewMessageID(), msg.Payload)}, nil
}

// file handles a receipt.
func file(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return nil, postbox.ErrNoTransaction
	}
	var paid payment
	if err := json.Unmarshal(msg.Payload, &paid); err != nil {
		return nil, postbox.Permanent(err)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO payments_filed (command_id, cents) VALUES ($1, $2)", paid.ID, paid.Cents)
	return nil, err
}

// role is one of the services. Each has a group of its own on the broker, and so gets every message
// of its topic.
type role struct {
	group        string
	consumer     string // what the inbox calls it: who has the same name shares the work
	topic        string
	publishTopic string
	handle       message.HandlerFunc
}

// roles are two tellers, which do the same, and the bookkeeping. Tellers would better be in one
// group. In two groups both get every command, at the same instant, which is the worst that can
// happen, and which the inbox makes harmless.
var roles = []role{
	{group: "payments-teller-1", consumer: "teller", topic: commandsTopic, publishTopic: receiptsTopic, handle: pay},
	{group: "payments-teller-2", consumer: "teller", topic: commandsTopic, publishTopic: receiptsTopic, handle: pay},
	{group: "payments-bookkeeping", consumer: "bookkeeping", topic: receiptsTopic, handle: file},
}

// service is a role that runs: it would be a process of its own, but for the database and the
// outbox, which are shared.
type service struct {
	router *router.Router
	store  *inboxstore.Store
	ended  chan error
}

func (b *bank) start(ctx context.Context, as role) (*service, error) {
	store, err := inboxstore.New(b.Tables(prefix), inboxstore.Config{}, b.Logger)
	if err != nil {
		return nil, err
	}
	r, err := router.New(nil, router.Config{Store: store, Outbox: b.publisher}, b.Logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := b.NewSubscriber(as.group, as.topic)
	if err != nil {
		return nil, err
	}
	r.Router().AddMiddleware(b.post.noteDelivery) // outside the inbox: it sees duplicates too
	handler, err := r.AddInboxHandler(as.group, as.topic, subscriber, as.publishTopic, as.handle, middleware.InboxConfig{
		Consumer: as.consumer, Retry: soon,
	})
	if err != nil {
		return nil, err
	}
	handler.AddMiddleware(failSometimes) // inside the inbox: in the transaction, after the handler's writes
	s := &service{router: r, store: store, ended: make(chan error, 1)}
	go func() { s.ended <- r.Run(context.WithoutCancel(ctx)) }() // stop ends it, after the forwarder
	select {
	case <-r.Running():
		return s, nil
	case err := <-s.ended:
		return nil, cmp.Or(err, errors.New("the router has stopped"))
	}
}

// stop stops the service: what it works on comes to its end first.
func (s *service) stop() error { return errors.Join(s.router.Close(), <-s.ended, s.store.Close()) }
