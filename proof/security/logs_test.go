package security_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
	"github.com/postbox-go/watermill-postbox/sources"
)

// What no line at info level or above may hold, nor a failure record.
const (
	secretPayload  = `{"card":"4111-5ecret"}` //nolint:gosec // it is nobody's
	secretMetadata = "bearer-5ecret"
	secretMark     = "5ecret"
)

// Messages go well, fail, panic, meet outages, cannot be read and die, in every part of Postbox.
// What they hold stays out of the log and of the failure records; errors of handlers and brokers
// are there as they are.
func TestLogs_hold_no_contents(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		f := &flows{Database: database, logger: newCapture()}
		f.outbox(t)
		f.unreadable(t)
		f.source(t)
		f.inbox(t)
		f.queue(t)
		f.operator(t)

		require.NotContains(t, f.logger.loudly(), secretMark)
		require.Contains(t, f.logger.loudly(), "panic: the broker gave up")
		require.Contains(t, f.logger.loudly(), "the handler gave up")
		rows, err := database.DB.QueryContext(t.Context(), errorsOfLetters)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		records := 0
		for ; rows.Next(); records++ {
			var text string
			require.NoError(t, rows.Scan(&text))
			require.NotContains(t, text, secretMark)
		}
		require.NoError(t, rows.Err())
		require.Greater(t, records, 10)
	})
}

// flows is what happens to messages.
type flows struct {
	*testdb.Database
	logger capture
	dead   int
}

func secret(id string) *message.Message {
	msg := message.NewMessage(id, []byte(secretPayload))
	msg.Metadata.Set("authorization", secretMetadata)
	return msg
}

// impatient gives up at the second failure, at once.
func impatient() postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond}
}

func (f *flows) publisher(t *testing.T, outbox string) *forwarder.Publisher {
	t.Helper()
	publisher, err := forwarder.NewPublisher(f.Postbox(), forwarder.PublisherConfig{Outbox: outbox, AllowAutocommit: true}, f.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// forward runs a forwarder until the outbox is empty and so many more messages are dead.
func (f *flows) forward(t *testing.T, outbox string, dead int, sources ...forwarder.Source) {
	t.Helper()
	f.dead += dead
	fwd, err := forwarder.New(f.Postbox(), &moody{}, forwarder.Config{
		Outbox: outbox, Retry: impatient(), Tuning: postbox.Tuning{ProbeMin: time.Millisecond, OutageLimit: time.Millisecond}, Sources: sources,
		// each failure counts after it: nothing else gets through that could prove the broker to
		// work
	}, f.logger)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(t.Context()) }()
	f.settled(t)
	require.NoError(t, fwd.Close())
	require.NoError(t, <-ended)
}

// settled waits until everything is done or dead.
func (f *flows) settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return f.Count(t, failedMessage) == f.dead && f.Count(t, storedMessages) == 0
	}, patience, tick)
}

// moody is a broker that has an answer for each topic.
type moody struct{ calls int }

func (m *moody) Publish(topic string, _ ...*message.Message) error {
	switch topic {
	case "refused":
		return errors.New("the broker says no")
	case "permanent":
		return postbox.Permanent(errors.New("the broker says never"))
	case "panics":
		panic("the broker gave up")
	case "outage":
		if m.calls++; m.calls < 3 {
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
	}
	return nil
}

func (m *moody) Close() error { return nil }

func (f *flows) outbox(t *testing.T) {
	t.Helper()
	publisher := f.publisher(t, "logs")
	for _, topic := range []string{"orders", "refused", "permanent", "panics", "outage"} {
		require.NoError(t, publisher.Publish(topic, secret(topic)))
	}
	f.forward(t, "logs", 3)

	for _, key := range []string{delay.DelayedForKey, delay.DelayedUntilKey} {
		msg := secret("delayed")
		msg.Metadata.Set(key, secretMetadata)
		err := publisher.Publish("orders", msg)
		require.ErrorContains(t, err, key)
		require.NotContains(t, err.Error(), secretMark)
	}
}

// unreadable messages have metadata that nobody can decode.
func (f *flows) unreadable(t *testing.T) {
	t.Helper()
	publisher := f.publisher(t, "broken")
	for _, stored := range []string{secretMetadata, `{"authorization":{"` + secretMetadata + `":1}}`, "\x00[\"" + secretMetadata + "\"]"} {
		require.NoError(t, publisher.Publish("orders", secret("broken")))
		f.Exec(t, breakMetadata, []byte(stored))
		f.forward(t, "broken", 1)
	}
}

// source takes over rows of watermill-sql that are no messages.
func (f *flows) source(t *testing.T) {
	t.Helper()
	if f.Dialect == postbox.SQLite {
		return // watermill-sql has no schema for it
	}
	old := newOldTable(t, f.Database)
	for _, payload := range []string{secretPayload, secretMetadata, `{"destination_topic":"` + secretMetadata + `\u0000"}`, `{"destination_topic":"a","payload":"` + secretMetadata + `%"}`} {
		msg := secret("row")
		msg.Payload = []byte(payload)
		require.NoError(t, old.Publish("events", msg))
	}
	f.forward(t, "taken over", 4, sources.WatermillSQL(sources.Config{Topic: "events", Envelope: true, PollMin: time.Millisecond}))
}

// inbox runs handlers that fail, panic and cannot read where a message comes from, in Watermill's
// router.
func (f *flows) inbox(t *testing.T) {
	t.Helper()
	store := f.store(t)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Retry: impatient()}, f.logger)
	require.NoError(t, err)
	causation, err := middleware.Causation(middleware.CausationConfig{Module: "billing", EventType: func(*message.Message) string { return "Event" }})
	require.NoError(t, err)
	deferring, err := middleware.DeferWith(store, "later", middleware.DeferConfig{Retry: impatient()})
	require.NoError(t, err)

	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	router, err := message.NewRouter(message.RouterConfig{}, f.logger)
	require.NoError(t, err)
	router.AddConsumerHandler("billing", "orders", channel, func(msg *message.Message) error {
		if msg.UUID == "panics" {
			panic("the handler gave up")
		}
		return errBroker
	}).AddMiddleware(inbox.Middleware, wmmiddleware.Recoverer, causation)
	router.AddConsumerHandler("later", "delayed", channel, nil).AddMiddleware(deferring)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(t.Context()) }()
	<-router.Running()

	for i, path := range []string{secretMetadata, `["` + secretMetadata + `"]`, `["` + secretMetadata + `/%"]`} {
		msg := secret(fmt.Sprint("lost ", i))
		msg.Metadata.Set(postbox.MetadataCausationPath, path)
		require.NoError(t, channel.Publish("orders", msg))
	}
	require.NoError(t, channel.Publish("orders", secret("fails"), secret("panics")))
	f.dead += 5
	f.settled(t)

	lost := secret("lost")
	lost.Metadata.Set(delay.DelayedForKey, secretMetadata)
	require.NoError(t, channel.Publish("delayed", lost))
	f.dead++
	f.settled(t)
	require.NoError(t, router.Close())
	require.NoError(t, <-ended)
	require.Contains(t, f.logger.loudly(), delay.DelayedForKey) // written after the dead letter
	require.NoError(t, channel.Close())
}

func (f *flows) store(t *testing.T) *inboxstore.Store {
	t.Helper()
	store, err := inboxstore.New(f.Postbox(), inboxstore.Config{}, f.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// queue works off messages that fail, one by one and as a batch.
func (f *flows) queue(t *testing.T) {
	t.Helper()
	store := f.store(t)
	stored := func(queue string, ids ...string) {
		for _, id := range ids {
			_, err := store.Defer(t.Context(), queue, inboxstore.Key{Consumer: queue, Topic: "orders", MessageID: id}, secret(id))
			require.NoError(t, err)
		}
	}
	stored("single", "fails", "never", "nacked", "good")
	subscriber, err := queue.NewSubscriber(store, queue.Config{
		Retry: impatient(), Transactional: true, OnDead: func(context.Context, queue.Failure) { panic("the alarm gave up") },
	}, f.logger)
	require.NoError(t, err)
	messages, err := subscriber.Subscribe(t.Context(), "single")
	require.NoError(t, err)
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for msg := range messages {
			switch msg.UUID {
			case "fails":
				queue.Fail(msg.Context(), errBroker)
				msg.Nack()
			case "never":
				queue.Fail(msg.Context(), postbox.Permanent(errBroker))
				msg.Nack()
			case "nacked":
				msg.Nack()
			default:
				msg.Ack()
			}
		}
	}()
	f.dead += 3
	f.settled(t)
	require.NoError(t, subscriber.Close())
	<-handled

	stored("batch", "1", "2")
	batch, err := queue.NewBatch(store, "batch", func(context.Context, []*message.Message) error { panic("the batch gave up") },
		queue.BatchConfig{Age: time.Millisecond, Worker: queue.Config{Retry: impatient()}}, f.logger)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- batch.Run(t.Context()) }()
	f.dead += 2
	f.settled(t)
	require.NoError(t, batch.Close())
	require.NoError(t, <-ended)
}

// operator deals with what is dead.
func (f *flows) operator(t *testing.T) {
	t.Helper()
	a, err := admin.New(f.Postbox(), admin.Config{}, f.logger)
	require.NoError(t, err)
	letters, _, err := a.DeadLetters(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, f.dead)
	require.NoError(t, errorOf(a.Resolve(t.Context(), admin.Filter{ID: letters[0].ID}, "told the customer")))
	require.NoError(t, errorOf(a.Delete(t.Context(), admin.Filter{ID: letters[1].ID})))
	_, err = a.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
	if err != nil { // of those that cannot be read
		require.ErrorIs(t, err, admin.ErrRefused)
		require.NotContains(t, err.Error(), secretMark)
	}
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
