package middleware_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/unique"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// storeWith returns a store with a logger.
func storeWith(t *testing.T, database *testdb.Database, logger watermill.LoggerAdapter) *inboxstore.Store {
	t.Helper()
	store, err := inboxstore.New(database.Migrate(t).Postbox(), inboxstore.Config{MaxPayload: 1000}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// logged returns the errors of the log lines of a level whose text begins so.
func logged(logger *watermill.CaptureLoggerAdapter, level watermill.LogLevel, text string) (found []error) {
	for _, line := range logger.Captured()[level] {
		if strings.HasPrefix(line.Msg, text) {
			found = append(found, line.Err)
		}
	}
	return found
}

func TestDefer_G3_what_can_never_be_stored_is_a_dead_letter_and_is_acked(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		logger := watermill.NewCaptureLogger()
		store := storeWith(t, database, logger)
		h := deferWith(t, store, middleware.DeferConfig{Topic: "orders"})
		bad := func(id, payload, key, value string) *message.Message {
			msg := message.NewMessage(id, []byte(payload))
			msg.Metadata.Set(key, value)
			return msg
		}
		for _, msg := range []*message.Message{
			bad("large", strings.Repeat("x", 2000), "a", "b"),
			bad("delay", "payload", delay.DelayedForKey, "soon"),
			bad("time", "payload", delay.DelayedUntilKey, "never"),
			bad("key", "", postbox.MetadataOrderingKey, strings.Repeat("k", 70_000)),
			bad(strings.Repeat("i", 70_000), "", "a", "b"),
			bad("", "no id", "a", "b"),
			bad("", "no id", "a", "b"), // another message, which has a letter of its own
			message.NewMessage("good", nil),
		} {
			_, err := h(msg)
			require.NoError(t, err, "%.100s", msg.UUID)
		}
		require.Equal(t, 7, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE consumer = 'queue fraud' AND topic = 'orders' AND attempts = 0"))
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE payload = ?", []byte("no id")))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE payload = ?", []byte(strings.Repeat("x", 2000))))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ?", []byte("good")))
		require.Len(t, logged(logger, watermill.ErrorLogLevel, "Postbox moved a message to the dead letters"), 7)
	})
}

// A table that is not there stands for a right that is not there: the server refuses the statement.
// The first pause is short and the second one is not, whatever failed.
func TestInbox_pauses_longer_each_time_if_the_failure_cannot_be_recorded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		logger := watermill.NewCaptureLogger()
		store := storeWith(t, database, logger)
		for _, table := range []string{"postbox_dead_letters", "postbox_failures"} {
			database.Exec(t, "ALTER TABLE "+table+" RENAME TO gone")
			for name, failure := range map[string]error{
				"permanent": postbox.Permanent(errHandler), "last attempt": errHandler, "RetryAfter": postbox.RetryAfter(errHandler, 0),
			} {
				inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Consumer: "billing", Topic: "orders", Retry: postbox.RetryProfile{
					Attempts: 1, Base: time.Millisecond, Multiplier: 1e7, Cap: time.Hour, Jitter: -1,
				}}, nil)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				fails := func(ctx context.Context) error {
					_, err := inbox.Process(ctx, message.NewMessage(name, nil), func(*message.Message) ([]*message.Message, error) { return nil, failure })
					return err
				}
				require.ErrorIs(t, fails(ctx), errHandler)
				second := make(chan error, 1)
				go func() { second <- fails(ctx) }()
				select {
				case err := <-second:
					require.Fail(t, "the broker gets the message back at once", "%s, %s: %v", table, name, err)
				case <-time.After(time.Second):
				}
				cancel()
				require.Error(t, <-second)
			}
			database.Exec(t, "ALTER TABLE gone RENAME TO "+table)
		}
		lines := logged(logger, watermill.ErrorLogLevel, "Postbox nacks messages")
		require.Len(t, lines, 1, "once a minute")
		require.ErrorContains(t, lines[0], "postbox_dead_letters")
	})
}

// CQRS unmarshals before the handler, which so cannot say that the error is permanent.
func TestInbox_G3_MapError_makes_the_error_of_CQRS_for_a_malformed_event_permanent(t *testing.T) {
	t.Parallel()
	type placed struct{ ID string }
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) {
			c.Retry = postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}
			c.MapError = func(_ *message.Message, err error) error {
				if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
					return postbox.Permanent(err)
				}
				return err
			}
		})
		channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 2}, nil)
		handled := make(chan string, 1)
		startRouter(t, func(router *message.Router) {
			processor, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
				SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return channel, nil
				},
				Marshaler: cqrs.JSONMarshaler{},
			})
			require.NoError(t, err)
			added, err := processor.AddHandler(cqrs.NewEventHandler("charge", func(_ context.Context, event *placed) error {
				handled <- event.ID
				return nil
			}))
			require.NoError(t, err)
			added.AddMiddleware(inbox.Middleware, middleware.Guard)
		})
		for id, payload := range map[string]string{"bad": "not json", "good": `{"ID":"1"}`} {
			msg := message.NewMessage(id, []byte(payload))
			msg.Metadata.Set("name", "middleware_test.placed")
			require.NoError(t, channel.Publish("orders", msg))
		}
		select {
		case id := <-handled:
			require.Equal(t, "1", id)
		case <-time.After(time.Minute):
			require.Fail(t, "the malformed event stands in front")
		}
		require.Eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ?", []byte("bad")) == 1
		}, time.Minute, 10*time.Millisecond)
	})
}

func TestInbox_MapError_with_nil_makes_a_message_done_without_an_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, func(c *middleware.InboxConfig) {
			c.MapError = func(msg *message.Message, err error) error {
				require.Equal(t, "1", msg.UUID)
				require.ErrorIs(t, err, errHandler)
				return nil
			}
		})
		for range 2 {
			fresh, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(func() error { return errHandler }))
			require.NoError(t, err)
			require.False(t, fresh)
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{0, 0, 0}, []int{effects, receipts, dead})
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_claims"))
	})
}

func TestInbox_says_once_that_a_transaction_that_is_rolled_back_counts_no_failures(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		logger := watermill.NewCaptureLogger()
		inbox, err := middleware.NewInbox(storeWith(t, database, nil), middleware.InboxConfig{
			Consumer: "billing", Topic: "orders", Retry: postbox.RetryProfile{Attempts: 3},
		}, logger)
		require.NoError(t, err)
		fails := func(end func(tx *sql.Tx) error) {
			tx, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, _ = inbox.Process(postbox.ContextWithTx(t.Context(), tx), message.NewMessage("1", nil),
				func(*message.Message) ([]*message.Message, error) { return nil, errHandler })
			require.NoError(t, end(tx))
		}
		for range 4 {
			fails((*sql.Tx).Rollback)
		}
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
		require.Len(t, logged(logger, watermill.InfoLogLevel, "A handler failed in a transaction that its caller began"), 1)
		for range 3 { // as the line says
			fails((*sql.Tx).Commit)
		}
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE attempts = 3"))
	})
}

// The handler returns the very message that it got, and whoever sent that also wants to replace a
// waiting message of this service, to be skipped, to wait for a year, and to come from elsewhere.
func TestInbox_control_metadata_from_outside_has_no_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		inbox := inboxFor(t, database, nil)
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = publisher.Close() })
		err = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			victim := postbox.ReplaceWaiting(message.NewMessage("victim", nil), "alice")
			victim.SetContext(ctx)
			return publisher.Publish("receipts", victim)
		})
		require.NoError(t, err)
		for id, mode := range map[string]string{"replaces": unique.Replace, "skips": unique.Skip, "nonsense": "x"} {
			msg := message.NewMessage(id, nil)
			msg.Metadata = message.Metadata{
				unique.Key: "alice", unique.Mode: mode, delay.DelayedForKey: "8760h",
				postbox.MetadataSourceTopic: "balances", spool.KafkaKey: "alice", postbox.MetadataOrderingKey: "mine", "own": "stays",
			}
			sent := msg.Copy()
			fresh, err := inbox.Process(t.Context(), msg, func(msg *message.Message) ([]*message.Message, error) {
				require.Equal(t, message.Metadata{postbox.MetadataOrderingKey: "mine", "own": "stays"}, msg.Metadata)
				return []*message.Message{msg}, nil
			})
			require.NoError(t, err)
			require.True(t, fresh)
			require.NotEmpty(t, sent.Metadata)
		}
		require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'receipts' AND state = 0"))
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ?", []byte("victim")))
	})
}
