package postboxtest

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

const (
	// patience is how long a drain may take before the test fails.
	patience = time.Minute
	// glance is the pause between two checks whether a drain is complete.
	glance = 2 * time.Millisecond
)

// Kit has the helpers for one test and its database. No service may drain an outbox or a queue
// beside Published or Drain. A Kit is safe for concurrent use.
type Kit struct {
	// Outbox is the name of the outbox that Published drains. New sets it to "outbox".
	Outbox string

	tb         testing.TB
	db         postbox.Database
	statements *dialect.Statements
	store      *inboxstore.Store

	mu        sync.Mutex
	published map[string][]*message.Message
}

// New returns a kit on the test's database. [postbox.Migrate] must have created its tables.
func New(tb testing.TB, db postbox.Database) *Kit {
	tb.Helper()
	statements, err := spool.StatementsIn(db)
	if err != nil {
		tb.Fatalf("postboxtest: %s", err)
	}
	store, err := inboxstore.New(db, inboxstore.Config{}, nil)
	if err != nil {
		tb.Fatalf("postboxtest: %s", err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return &Kit{Outbox: spool.DefaultOutbox, tb: tb, db: db, statements: statements, store: store, published: map[string][]*message.Message{}}
}

// Published drains the outbox and returns the messages that have been published to the topic since
// the kit was made, in that order. A message with a delay is not among them before [Kit.Advance].
func (k *Kit) Published(topic string) []*message.Message {
	k.tb.Helper()
	f, err := forwarder.New(k.db, collector{k}, forwarder.Config{
		Outbox: k.Outbox, Concurrency: 1,
		DeadLetterRetention: -1,
	}, nil)
	if err != nil {
		k.tb.Fatalf("postboxtest: %s", err)
	}
	k.drain(k.Outbox, false, f.Run)
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*message.Message(nil), k.published[topic]...)
}

// collector is where the kit publishes to.
type collector struct{ k *Kit }

// Publish notes messages.
func (c collector) Publish(topic string, messages ...*message.Message) error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	c.k.published[topic] = append(c.k.published[topic], messages...)
	return nil
}

// Close does nothing.
func (collector) Close() error { return nil }

// Drain lets the handler handle all messages of a queue that are due, and those that become due
// meanwhile, and returns how often it ran. A message that fails waits for its next attempt, as the
// config says: let time pass with [Kit.Advance]. It is an error if the handler returns messages:
// publish them with the message's context instead.
func (k *Kit) Drain(name string, config queue.Config, handler message.NoPublishHandlerFunc) int {
	k.tb.Helper()
	subscriber, err := queue.NewSubscriber(k.store, config, nil)
	if err != nil {
		k.tb.Fatalf("postboxtest: %s", err)
	}
	handle := middleware.Process(func(msg *message.Message) ([]*message.Message, error) {
		return nil, handler(msg)
	})
	var mu sync.Mutex
	ran := 0
	k.drain(spool.QueuePrefix+name, config.Unordered, func(ctx context.Context) error {
		received, err := subscriber.Subscribe(ctx, name)
		if err != nil {
			return err
		}
		var handlers sync.WaitGroup
		defer handlers.Wait()
		for msg := range received {
			handlers.Go(func() {
				mu.Lock()
				ran++
				mu.Unlock()
				if _, err := handle(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			})
		}
		return nil
	})
	_ = subscriber.Close() // it never returns an error
	return ran
}

// Advance lets the given time pass for all messages in the database: delays and pauses before
// another attempt become shorter, and waiting batches become older. Call it while no handler runs:
// a message that is being handled is handled again.
func (k *Kit) Advance(d time.Duration) {
	k.tb.Helper()
	ctx := context.Background()
	err := spool.InTx(ctx, k.db.DB, k.statements, func(tx *sql.Tx) error {
		for _, text := range advance {
			if err := spool.Run(ctx, tx, k.statements.Named(text).With(map[string]any{"by": d.Microseconds()})); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		k.tb.Fatalf("postboxtest: advance: %s", err)
	}
}

// advance has the statements for that. The failures and the unique key of a message contain its
// time, and the due time of every message comes nearer. A parked message stays parked. Drainers
// must read again, because the creation time is part of a message's identity.
var advance = []string{`
UPDATE {failures} SET subject = (
	SELECT {subject of m}
	FROM (SELECT m.id, m.created_at - :by AS created_at, {subject of m} AS subject FROM {messages} m) m
	WHERE m.subject = {failures}.subject)
WHERE subject IN (SELECT {subject of m} FROM {messages} m WHERE m.available_at < 4611686018427387904)`, `
UPDATE {unique_keys} SET created_at = created_at - :by
WHERE EXISTS (SELECT 1 FROM {messages} m WHERE m.id = {unique_keys}.id AND m.created_at = {unique_keys}.created_at AND m.available_at < 4611686018427387904)`, `
UPDATE {messages} SET available_at = available_at - :by, created_at = created_at - :by WHERE available_at < 4611686018427387904`, `
UPDATE {spools} SET version = version + 1`}

// DeadLetters returns the complete dead letters that no operator has resolved, at most 1000.
func (k *Kit) DeadLetters() []admin.DeadLetter {
	k.tb.Helper()
	operator, err := admin.New(k.db, admin.Config{Outbox: k.Outbox}, nil)
	if err != nil {
		k.tb.Fatalf("postboxtest: %s", err)
	}
	letters, _, err := operator.DeadLetters(context.Background(), admin.Filter{Limit: 1000})
	if err != nil {
		k.tb.Fatalf("postboxtest: %s", err)
	}
	for i := range letters {
		whole, err := operator.DeadLetter(context.Background(), letters[i].ID)
		if err != nil {
			k.tb.Fatalf("postboxtest: %s", err)
		}
		letters[i] = *whole
	}
	return letters
}

// drain runs something that works a spool off until nothing of it can be handled now.
func (k *Kit) drain(name string, unordered bool, run func(ctx context.Context) error) {
	k.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	k.idle(ctx, name, unordered)
	cancel()
	if err := <-done; err != nil {
		k.tb.Fatalf("postboxtest: %s", err)
	}
}

// idle waits for that.
func (k *Kit) idle(ctx context.Context, name string, unordered bool) {
	k.tb.Helper()
	watched := spool.New(k.statements, name)
	pause := time.NewTicker(glance)
	defer pause.Stop()
	for {
		busy, err := watched.Runnable(ctx, k.db.DB, unordered)
		switch {
		case err != nil:
			k.tb.Fatalf("postboxtest: %s", err)
		case !busy:
			return
		}
		select {
		case <-ctx.Done():
			k.tb.Fatalf("postboxtest: %q still has messages to process after %s", name, patience)
		case <-pause.C:
		}
	}
}
