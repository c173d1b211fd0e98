package middleware_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// monolith is a process whose modules talk to each other through inbox, outbox and a channel.
type monolith struct {
	inbox   *middleware.Inbox
	outbox  message.Publisher
	channel *gochannel.GoChannel
}

func newMonolith(t *testing.T, database *testdb.Database) *monolith {
	t.Helper()
	m := &monolith{channel: gochannel.NewGoChannel(gochannel.Config{}, nil)}
	m.inbox = inboxFor(t, database, func(c *middleware.InboxConfig) {
		c.Consumer, c.Topic, c.PublishTopic = "", "", ""
		m.outbox = c.Outbox
	})
	config := forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}}
	fwd, err := forwarder.New(database.Postbox(), m.channel, config, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = fwd.Close()
		require.NoError(t, <-done)
		_ = m.channel.Close()
	})
	return m
}

// module adds a module with one handler.
func (m *monolith) module(t *testing.T, router *message.Router, config middleware.CausationConfig, from, to string, h message.HandlerFunc) {
	t.Helper()
	router.AddHandler(config.Module, from, m.channel, to, forwarder.KeepOpen(m.channel), h).
		AddMiddleware(m.inbox.Middleware, causationFor(t, config))
}

func causationFor(t *testing.T, config middleware.CausationConfig) message.HandlerMiddleware {
	t.Helper()
	causation, err := middleware.Causation(config)
	require.NoError(t, err)
	return causation
}

func returning(produced ...*message.Message) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) { return produced, nil }
}

func named(uuid, name string) *message.Message {
	msg := message.NewMessage(uuid, nil)
	msg.Metadata.Set("name", name)
	return msg
}

// Covers feature 3.2.
func TestCausation_travels_through_inbox_and_outbox_of_three_modules(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		m := newMonolith(t, database)
		payment := named("payment", "PaymentTaken")
		payment.Metadata.Set("schema_version", "2")
		heard := map[string]<-chan *message.Message{}
		for _, topic := range []string{"taken", "packed", "sent"} {
			var err error
			heard[topic], err = m.channel.Subscribe(t.Context(), topic)
			require.NoError(t, err)
		}
		startRouter(t, func(router *message.Router) {
			m.module(t, router, middleware.CausationConfig{Module: "payments"}, "placed", "taken", returning(payment))
			m.module(t, router, middleware.CausationConfig{Module: "shipping"}, "taken", "", func(msg *message.Message) ([]*message.Message, error) {
				return nil, m.outbox.Publish("packed", message.NewMessageWithContext(msg.Context(), "parcel", nil)) // as a CQRS bus does
			})
			m.module(t, router, middleware.CausationConfig{Module: "mail"}, "packed", "sent", returning(message.NewMessage("letter", nil)))
		})
		require.NoError(t, m.channel.Publish("placed", named("order", "OrderPlaced")))

		for topic, want := range map[string]message.Metadata{
			"taken": {
				postbox.MetadataCorrelationID: "order", postbox.MetadataCausationID: "order", postbox.MetadataCausationPath: `["payments/OrderPlaced"]`,
				"schema_version": "2", "name": "PaymentTaken",
			},
			"packed": {
				postbox.MetadataCorrelationID: "order", postbox.MetadataCausationID: "payment",
				postbox.MetadataCausationPath: `["payments/OrderPlaced","shipping/PaymentTaken"]`,
			},
			"sent": { // a message without a name is known by its topic
				postbox.MetadataCorrelationID: "order", postbox.MetadataCausationID: "parcel",
				postbox.MetadataCausationPath: `["payments/OrderPlaced","shipping/PaymentTaken","mail/packed"]`,
			},
		} {
			select {
			case msg := <-heard[topic]:
				require.Equal(t, want, msg.Metadata)
				msg.Ack()
			case <-time.After(patience):
				require.Fail(t, "nothing came", topic)
			}
		}
	})
}

// Covers feature 3.2.
func TestCausation_a_loop_ends_as_a_dead_letter_with_the_path_as_its_reason(t *testing.T) {
	t.Parallel()
	type answer func(outbox message.Publisher, topic string, msg *message.Message) ([]*message.Message, error)
	for name, answer := range map[string]answer{
		"returned": func(_ message.Publisher, _ string, _ *message.Message) ([]*message.Message, error) {
			return []*message.Message{message.NewMessage(watermill.NewUUID(), nil)}, nil
		},
		"a copy of the handled message": func(_ message.Publisher, _ string, msg *message.Message) ([]*message.Message, error) {
			again := msg.Copy()
			again.UUID = watermill.NewUUID()
			return []*message.Message{again}, nil
		},
		"published": func(outbox message.Publisher, topic string, msg *message.Message) ([]*message.Message, error) {
			return nil, outbox.Publish(topic, message.NewMessageWithContext(msg.Context(), watermill.NewUUID(), nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			m := newMonolith(t, database)
			var handled atomic.Int64
			startRouter(t, func(router *message.Router) {
				for _, module := range [][3]string{{"a", "ping", "pong"}, {"b", "pong", "ping"}} {
					config := middleware.CausationConfig{Module: module[0], MaxHops: 5}
					m.module(t, router, config, module[1], module[2], func(msg *message.Message) ([]*message.Message, error) {
						handled.Add(1)
						return answer(m.outbox, module[2], msg)
					})
				}
			})
			require.NoError(t, m.channel.Publish("ping", message.NewMessage("first", nil)))
			require.Eventually(t, func() bool {
				return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1
			}, patience, 5*time.Millisecond)
			var consumer, reason string
			row := database.DB.QueryRowContext(t.Context(), "SELECT consumer, error FROM postbox_dead_letters")
			require.NoError(t, row.Scan(&consumer, &reason))
			require.Equal(t, "b", consumer)
			require.Equal(t, "causation path: the limit of 5 hops is reached, b/pong would be one more: "+
				"a/ping → b/pong → a/ping → b/pong → a/ping", reason)
			require.EqualValues(t, 5, handled.Load())
		})
	}
}

func TestCausation_limit_counts_hops_and_keeps_the_handler_from_running(t *testing.T) {
	t.Parallel()
	for limit, config := range map[int]middleware.CausationConfig{
		1: {Module: "me", MaxHops: 1}, 3: {Module: "me", MaxHops: 3}, 32: {Module: "me"},
	} {
		runs := 0
		h := causationFor(t, config)(func(*message.Message) ([]*message.Message, error) {
			runs++
			return []*message.Message{named("next", "Event")}, nil
		})
		msg := named("first", "Event")
		for range limit {
			produced, err := h(msg)
			require.NoError(t, err)
			msg = produced[0]
		}
		_, err := h(msg)
		require.ErrorIs(t, err, postbox.ErrPermanent)
		require.Equal(t, limit, runs)
		require.Equal(t, limit, strings.Count(err.Error(), " → ")+1, "the whole path")
	}
}

func TestCausation_path_that_cannot_be_read_is_dead_at_once(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	inbox := inboxFor(t, database, func(c *middleware.InboxConfig) { c.Retry.Attempts = -1 })
	msg := message.NewMessage("1", nil)
	msg.Metadata.Set(postbox.MetadataCausationPath, "orders > payments")
	_, err := inbox.Process(t.Context(), msg, causationFor(t, middleware.CausationConfig{Module: "me"})(handler(succeed)))
	require.NoError(t, err)
	effects, _, dead := counts(t, database)
	require.Equal(t, []int{0, 1}, []int{effects, dead})
	require.Equal(t, 1, database.Count(t, `SELECT COUNT(*) FROM postbox_dead_letters WHERE error LIKE '%causation_path is not a causation path%'`))
}

func TestCausation_is_in_the_context_while_the_handler_runs(t *testing.T) {
	t.Parallel()
	type mark struct{}
	msg := message.NewMessageWithContext(context.WithValue(t.Context(), mark{}, "mine"), "1", nil)
	before := msg.Context()
	config := middleware.CausationConfig{Module: "me", EventType: func(msg *message.Message) string { return "type of " + msg.UUID }}
	_, err := causationFor(t, config)(func(msg *message.Message) ([]*message.Message, error) {
		causation, ok := postbox.CausationFromContext(msg.Context())
		require.True(t, ok)
		require.Equal(t, "1", causation.CausationID)
		require.Equal(t, []postbox.Hop{{Module: "me", EventType: "type of 1"}}, causation.Path)
		require.Equal(t, "mine", msg.Context().Value(mark{}))
		return nil, errHandler
	})(msg)
	require.ErrorIs(t, err, errHandler)
	require.Equal(t, before, msg.Context())
}

func TestCausation_changes_no_metadata_that_others_have(t *testing.T) {
	t.Parallel()
	config := middleware.CausationConfig{Module: "me"}
	handled := named("1", "Event")
	shared := message.Metadata{postbox.MetadataCorrelationID: "mine"}
	first, second := message.NewMessage("2", nil), message.NewMessage("3", nil)
	first.Metadata, second.Metadata = shared, nil
	h := causationFor(t, config)(returning(first, second, handled))
	for range 2 { // a retry further out
		produced, err := h(handled)
		require.NoError(t, err)
		require.Equal(t, message.Metadata{"name": "Event"}, handled.Metadata)
		require.Equal(t, message.Metadata{postbox.MetadataCorrelationID: "mine"}, shared)
		stamp := message.Metadata{postbox.MetadataCorrelationID: "1", postbox.MetadataCausationID: "1", postbox.MetadataCausationPath: `["me/Event"]`}
		require.Equal(t, stamp, produced[1].Metadata)
		stamp["name"] = "Event"
		require.Equal(t, stamp, produced[2].Metadata, "the message handled, handed on")
		delete(stamp, "name")
		stamp[postbox.MetadataCorrelationID] = "mine"
		require.Equal(t, stamp, produced[0].Metadata, "what the user set stays")
	}
}

func TestCausation_of_a_message_without_id_is_its_path(t *testing.T) {
	t.Parallel()
	produced, err := causationFor(t, middleware.CausationConfig{Module: "me"})(returning(message.NewMessage("2", nil)))(named("", "Event"))
	require.NoError(t, err)
	require.Equal(t, message.Metadata{postbox.MetadataCausationPath: `["me/Event"]`}, produced[0].Metadata)
}

func TestCausation_names_survive_the_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		m := newMonolith(t, database)
		heard, err := m.channel.Subscribe(t.Context(), "out")
		require.NoError(t, err)
		module, name := "a/b → \"c\", 'd'\xff", "nul\x00%2F[]größer"
		startRouter(t, func(router *message.Router) {
			m.module(t, router, middleware.CausationConfig{Module: module}, "in", "out", returning(message.NewMessage("2", nil)))
		})
		require.NoError(t, m.channel.Publish("in", named("1", name)))
		select {
		case msg := <-heard:
			causation, err := postbox.CausationOf(msg, postbox.Hop{})
			require.NoError(t, err)
			require.Equal(t, []postbox.Hop{{Module: module, EventType: name}, {}}, causation.Path)
			msg.Ack()
		case <-time.After(patience):
			require.Fail(t, "nothing came")
		}
	})
}

func TestCausation_bad_config_names_the_fields(t *testing.T) {
	t.Parallel()
	_, err := middleware.Causation(middleware.CausationConfig{MaxHops: -1})
	require.ErrorContains(t, err, "Module: it is empty")
	require.ErrorContains(t, err, "MaxHops: -1 is not positive")
}
