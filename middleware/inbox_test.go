package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

var errHandler = errors.New("handler says no")

// inboxFor returns an inbox outside any router, with a table for effects.
func inboxFor(t *testing.T, database *testdb.Database, change func(*middleware.InboxConfig)) *middleware.Inbox {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	config := middleware.InboxConfig{
		Consumer: "billing", Topic: "orders", Outbox: publisher, PublishTopic: "receipts",
		Retry: postbox.RetryProfile{Attempts: 3, Base: time.Nanosecond, Cap: time.Nanosecond},
	}
	if change != nil {
		change(&config)
	}
	inbox, err := middleware.NewInbox(store, config, nil)
	require.NoError(t, err)
	return inbox
}

// handler writes an effect through the transaction, returns a receipt, and then fails as it is
// told.
func handler(fail func() error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := postbox.TxFromContext(msg.Context())
		if !ok {
			return nil, errors.New("no transaction in the context")
		}
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ('x')"); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage("receipt of "+msg.UUID, nil)}, fail()
	}
}

func succeed() error { return nil }

func counts(t *testing.T, database *testdb.Database) (effects, receipts, dead int) {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM effects"),
		database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'receipts'"),
		database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters")
}

func TestInbox_G4_handler_claim_and_returned_messages_commit_together(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		inbox := inboxFor(t, database, nil)
		failures := 0
		h := inbox.Middleware(handler(func() error {
			if failures++; failures <= 2 {
				return errHandler
			}
			return nil
		}))
		msg := message.NewMessage("1", nil)
		for range 2 {
			_, err := h(msg)
			require.ErrorIs(t, err, errHandler)
			effects, receipts, _ := counts(t, database)
			require.Zero(t, effects+receipts, "a failed handler leaves no trace")
		}
		for range 3 { // delivered again and again
			produced, err := h(msg)
			require.NoError(t, err)
			require.Empty(t, produced, "the router has nothing to publish")
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{1, 1, 0}, []int{effects, receipts, dead})
		require.Equal(t, 3, failures)
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestInbox_dead_letter_after_the_limit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		calls := 0
		h := handler(func() error { calls++; return errHandler })
		msg := message.NewMessage("1", []byte("payload"))
		for attempt := 1; attempt <= 5; attempt++ {
			processed, err := inbox.Process(t.Context(), msg, h)
			require.False(t, processed)
			require.Equal(t, attempt < 3, err != nil, "attempt %d: the last one is acked", attempt)
		}
		require.Equal(t, 3, calls, "a dead message is not handled again")
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{0, 0, 1}, []int{effects, receipts, dead})
	})
}

func TestInbox_permanent_error_is_dead_at_once(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Retry.Attempts = -1 })
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(func() error { return postbox.Permanent(errHandler) }))
	require.NoError(t, err)
	_, _, dead := counts(t, database)
	require.Equal(t, 1, dead)
}

func TestInbox_panic_is_a_failure_with_its_stack(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	msg := message.NewMessage("1", nil)
	_, err := inbox.Process(t.Context(), msg, handler(func() error { panic("oh no") }))
	require.ErrorContains(t, err, "panic: oh no")
	effects, _, _ := counts(t, database)
	require.Zero(t, effects)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error LIKE 'panic: oh no%inbox_test.go%'"))
}

func TestInbox_G7_a_connection_that_the_database_ends_counts_no_failure_once(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect != postbox.PostgreSQL {
			return
		}
		inbox := inboxFor(t, database, nil)
		msg := message.NewMessage("1", nil)
		_, err := inbox.Process(t.Context(), msg, func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := postbox.TxFromContext(msg.Context())
			// The server ends this connection, as it does when it shuts down. Since it is there,
			// that would count the second time.
			_, err := tx.ExecContext(msg.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
			return nil, err
		})
		require.Error(t, err)
		processed, err := inbox.Process(t.Context(), msg, handler(succeed))
		require.NoError(t, err)
		require.True(t, processed)
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestInbox_restores_the_context_of_the_message(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	msg := message.NewMessage("1", nil)
	type mark struct{}
	msg.SetContext(context.WithValue(t.Context(), mark{}, "mine"))
	_, err := inbox.Middleware(handler(func() error { return errHandler }))(msg)
	require.Error(t, err)
	require.Equal(t, "mine", msg.Context().Value(mark{}))
	_, inTx := postbox.TxFromContext(msg.Context())
	require.False(t, inTx)
}

func TestInbox_F3_message_without_id(t *testing.T) {
	t.Parallel()
	coordinates := func(msg *message.Message) (string, error) { return msg.Metadata.Get("offset"), nil }
	for name, test := range map[string]struct {
		policy  func(*message.Message) (string, error)
		effects int
		dead    int
	}{
		"refused by default": {nil, 0, 4},
		"no name at all":     {func(*message.Message) (string, error) { return "", nil }, 0, 4},
		"broker coordinates": {coordinates, 3, 0},
		"hash of payload":    {middleware.PayloadHash, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.WithoutID = test.policy })
			for _, m := range [][2]string{{"1", "ab"}, {"2", "ba"}, {"3", "ab"}, {"1", "ab"}} { // the last one comes again
				msg := message.NewMessage("", []byte(m[1]))
				msg.Metadata.Set("offset", m[0])
				_, err := inbox.Process(t.Context(), msg, handler(succeed))
				require.NoError(t, err)
			}
			effects, _, dead := counts(t, database)
			require.Equal(t, test.effects, effects)
			require.Equal(t, test.dead, dead)
		})
	}
}

func TestInbox_bad_wiring_says_what_to_do(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Consumer, c.Outbox = "", nil })
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.ErrorContains(t, err, "set InboxConfig.Consumer")

	_, err = middleware.NewInbox(nil, middleware.InboxConfig{}, nil)
	require.Error(t, err)
	_, err = middleware.NewInbox(&inboxstore.Store{}, middleware.InboxConfig{Retry: postbox.RetryProfile{Attempts: -5, Base: -1}}, nil)
	require.ErrorContains(t, err, "-1 to never give up")
	require.ErrorContains(t, err, "Base and Cap")
}

// A broker would have the message although the commit fails afterwards.
func TestInbox_an_outbox_that_is_a_brokers_publisher_is_refused(t *testing.T) {
	t.Parallel()
	channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
	for want, outbox := range map[string]message.Publisher{
		"Outbox: a *gochannel.GoChannel publishes immediately": channel,
		"Outbox: a forwarder.keptOpen publishes immediately":   forwarder.KeepOpen(channel),
		"which forwarder.Decorate can decorate":                struct{ message.Publisher }{&forwarder.Publisher{}},
		"Outbox: it is a nil *forwarder.Publisher":             (*forwarder.Publisher)(nil),
	} {
		_, err := middleware.NewInbox(&inboxstore.Store{}, middleware.InboxConfig{Outbox: outbox}, nil)
		require.ErrorContains(t, err, want)
	}
	decorated, err := forwarder.Decorate(&forwarder.Publisher{})
	require.NoError(t, err)
	_, err = middleware.NewInbox(&inboxstore.Store{}, middleware.InboxConfig{Outbox: decorated}, nil)
	require.NoError(t, err)
}

func TestInbox_returned_messages_without_an_outbox_are_an_error(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Outbox = nil })
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
	require.ErrorContains(t, err, "configure an Outbox")
}

func TestInbox_pause_before_a_nack_ends_with_the_delivery(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Retry.Attempts = -1 })
	ctx, cancel := context.WithCancel(t.Context())
	var paused atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := inbox.Process(ctx, message.NewMessage("1", nil), handler(func() error {
			paused.Store(true)
			return postbox.RetryAfter(errHandler, time.Hour)
		}))
		done <- err
	}()
	require.Eventually(t, func() bool {
		return paused.Load() && database.Count(t, "SELECT COUNT(*) FROM postbox_failures") == 1
	}, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, errHandler)
}

// Brokers deliver a nacked message at once, and a database that is away would be asked in a hot
// loop.
func TestInbox_pauses_while_the_database_is_away(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) {
		c.Retry = postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}
	})
	require.NoError(t, database.DB.Close())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := inbox.Process(ctx, message.NewMessage("1", nil), handler(succeed))
		done <- err
	}()
	select {
	case err := <-done:
		require.Fail(t, "it does not pause", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.Error(t, <-done)
}

// What the handler has put into the context of a message that it returns counts beside the
// transaction: here a delay of Watermill's.
func TestInbox_delay_in_the_context_of_a_returned_message(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, nil)
	_, err := inbox.Process(t.Context(), message.NewMessage("1", nil), func(*message.Message) ([]*message.Message, error) {
		later, now := message.NewMessage("later", nil), message.NewMessage("now", nil)
		later.SetContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
		return []*message.Message{later, now}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND available_at - created_at = 3600000000", []byte("later")))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND state = 0", []byte("now")))
}
