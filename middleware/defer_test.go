package middleware_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// recordingStore keeps what it is told to store, and fails as it is told.
type recordingStore struct {
	mu    sync.Mutex
	fail  error
	queue string
	key   inboxstore.Key
	msg   *message.Message
	calls int

	buried int
}

func (s *recordingStore) Defer(_ context.Context, queue string, key inboxstore.Key, msg *message.Message) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.queue, s.key, s.msg = queue, key, msg
	return s.fail == nil, s.fail
}

func (s *recordingStore) Bury(context.Context, inboxstore.Key, *message.Message, int, error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buried++
	return nil
}

func (s *recordingStore) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// deferWith returns the middleware around a handler that must not run.
func deferWith(t *testing.T, store middleware.DeferStore, config middleware.DeferConfig) message.HandlerFunc {
	t.Helper()
	deferral, err := middleware.DeferWith(store, "fraud", config)
	require.NoError(t, err)
	return deferral(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler runs")
		return nil, nil
	})
}

// Also covers F21.
func TestDefer_G5_stores_each_message_of_a_topic_once_in_each_queue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		store, err := inboxstore.New(database.On(database.Migrate(t).DB), inboxstore.Config{CacheSize: -1}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		startRouter(t, func(router *message.Router) {
			never := func(*message.Message) error { t.Error("the handler runs"); return nil }
			router.AddConsumerHandler("one", "orders", channel, never).AddMiddleware(middleware.Defer(store, "fraud"))
			router.AddConsumerHandler("two", "orders", channel, never).AddMiddleware(middleware.Defer(store, "fraud"))
			router.AddConsumerHandler("three", "orders", channel, never).AddMiddleware(middleware.Defer(store, "stock"))
			router.AddConsumerHandler("four", "refunds", channel, never).AddMiddleware(middleware.Defer(store, "fraud"))
		})
		for range 3 { // delivered again and again
			for _, id := range []string{"1", "2"} {
				require.NoError(t, channel.Publish("orders", message.NewMessage(id, nil))) // returns when it is acked
			}
			require.NoError(t, channel.Publish("refunds", message.NewMessage("1", nil)))
		}
		require.Equal(t, 5, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'fraud'"))
		for topic, n := range map[string]int{"orders": 4, "refunds": 1} {
			require.Equal(t, n, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE metadata = ?",
				[]byte(`{"`+postbox.MetadataSourceTopic+`":"`+topic+`"}`)))
		}
	})
}

func TestDefer_captures_topic_ordering_key_and_broker_metadata(t *testing.T) {
	t.Parallel()
	capture := func(*message.Message) map[string]string {
		return map[string]string{spool.KafkaKey: "customer 7", "captured": "by the broker", "both": "by the broker"}
	}
	for name, test := range map[string]struct {
		config   middleware.DeferConfig
		id       string
		metadata message.Metadata
		want     message.Metadata
	}{
		"nothing": {
			config: middleware.DeferConfig{}, metadata: nil, want: message.Metadata{},
		},
		"topic": {
			config: middleware.DeferConfig{Topic: "orders"}, metadata: message.Metadata{"a": "b"},
			want: message.Metadata{"a": "b", postbox.MetadataSourceTopic: "orders"},
		},
		"topic that the producer has chosen": {
			config: middleware.DeferConfig{Topic: "orders"}, metadata: message.Metadata{postbox.MetadataSourceTopic: "first"},
			want: message.Metadata{postbox.MetadataSourceTopic: "orders"},
		},
		"nobody knows the topic": {
			metadata: message.Metadata{postbox.MetadataSourceTopic: "first", spool.KafkaKey: "mine"},
			want:     message.Metadata{},
		},
		"broker": {
			config: middleware.DeferConfig{Capture: capture}, metadata: message.Metadata{"both": "by the message"},
			want: message.Metadata{
				"captured": "by the broker", "both": "by the broker",
				spool.KafkaKey: "customer 7", postbox.MetadataOrderingKey: "customer 7",
			},
		},
		"broker, and a key of its own": {
			config: middleware.DeferConfig{Capture: capture}, metadata: message.Metadata{postbox.MetadataOrderingKey: "own"},
			want: message.Metadata{
				"captured": "by the broker", "both": "by the broker",
				spool.KafkaKey: "customer 7", postbox.MetadataOrderingKey: "own",
			},
		},
		"broker, key is the UUID": {
			config: middleware.DeferConfig{Capture: capture}, id: "customer 7",
			want: message.Metadata{"captured": "by the broker", "both": "by the broker", spool.KafkaKey: "customer 7"},
		},
		"ordering key": {
			config:   middleware.DeferConfig{OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("customer") }},
			metadata: message.Metadata{"customer": "8", postbox.MetadataOrderingKey: "own"},
			want:     message.Metadata{"customer": "8", postbox.MetadataOrderingKey: "8"},
		},
		"no ordering key": {
			config:   middleware.DeferConfig{OrderingKey: func(*message.Message) string { return "" }, Capture: capture},
			metadata: message.Metadata{postbox.MetadataOrderingKey: "own"},
			want: message.Metadata{
				"captured": "by the broker", "both": "by the broker", spool.KafkaKey: "customer 7", postbox.MetadataOrderingKey: "",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &recordingStore{}
			id := test.id
			if id == "" {
				id = "1"
			}
			msg := message.NewMessage(id, []byte("payload"))
			msg.Metadata = maps.Clone(test.metadata)
			produced, err := deferWith(t, store, test.config)(msg)
			require.NoError(t, err)
			require.Empty(t, produced)
			require.Equal(t, test.want, store.msg.Metadata)
			require.Equal(t, test.metadata, msg.Metadata, "the message delivered stays as it is")
			require.Equal(t, "payload", string(store.msg.Payload))
			require.Equal(t, "fraud", store.queue)
			require.Equal(t, inboxstore.Key{Consumer: "queue fraud", Topic: test.config.Topic, MessageID: id}, store.key)
		})
	}
}

func TestDefer_F3_message_without_id(t *testing.T) {
	t.Parallel()
	fast := postbox.RetryProfile{Base: time.Nanosecond, Cap: time.Nanosecond}
	store := &recordingStore{}
	nameless := message.NewMessage("", []byte("payload"))
	nameless.Metadata.Set("number", "42")
	_, err := deferWith(t, store, middleware.DeferConfig{Retry: fast})(nameless)
	require.NoError(t, err)
	none := func(*message.Message) (string, error) { return "", nil }
	_, err = deferWith(t, store, middleware.DeferConfig{Retry: fast, WithoutID: none})(nameless)
	require.NoError(t, err)
	require.Zero(t, store.calls)
	require.Equal(t, 2, store.buried)

	_, err = deferWith(t, store, middleware.DeferConfig{WithoutID: middleware.PayloadHash})(nameless)
	require.NoError(t, err)
	require.Contains(t, store.key.MessageID, "sha256:")
	require.Empty(t, store.msg.UUID)

	number := func(msg *message.Message) string { return msg.Metadata.Get("number") }
	_, err = deferWith(t, store, middleware.DeferConfig{MessageID: number})(nameless)
	require.NoError(t, err)
	require.Equal(t, "42", store.key.MessageID)
}

// A pause of a thousand seconds tells whether it is the second one in a row.
func TestDefer_G7_pauses_before_a_nack_and_longer_with_each_failure_in_a_row(t *testing.T) {
	t.Parallel()
	store := &recordingStore{}
	h := deferWith(t, store, middleware.DeferConfig{
		Retry: postbox.RetryProfile{Base: time.Millisecond, Multiplier: 1e6, Cap: time.Hour, Jitter: -1},
	})
	msg := message.NewMessage("1", nil)
	ctx, cancel := context.WithCancel(t.Context())
	msg.SetContext(ctx)
	errAway := errors.New("away")
	for range 3 { // never two in a row
		store.failWith(errAway)
		begun := time.Now()
		_, err := h(msg)
		require.ErrorIs(t, err, errAway)
		require.GreaterOrEqual(t, time.Since(begun), time.Millisecond)
		store.failWith(nil)
		_, err = h(msg)
		require.NoError(t, err)
	}
	store.failWith(errAway)
	_, err := h(msg)
	require.ErrorIs(t, err, errAway)
	second := make(chan error, 1)
	go func() {
		_, err := h(msg)
		second <- err
	}()
	select {
	case err := <-second:
		require.Fail(t, "the broker gets the message back at once", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	require.ErrorIs(t, <-second, errAway, "the pause ends with the delivery")
}

func TestDefer_does_not_pause_in_a_transaction_of_the_user(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	msg := message.NewMessage("1", nil)
	msg.SetContext(postbox.ContextWithTx(t.Context(), tx))
	_, err = deferWith(t, &recordingStore{fail: errHandler}, middleware.DeferConfig{
		Retry: postbox.RetryProfile{Base: time.Hour, Jitter: -1},
	})(msg)
	require.ErrorIs(t, err, errHandler)
}

func TestDeferWith_bad_wiring_says_what_to_do(t *testing.T) {
	t.Parallel()
	_, err := middleware.DeferWith(nil, "fraud", middleware.DeferConfig{})
	require.ErrorContains(t, err, "store")
	_, err = middleware.DeferWith(&recordingStore{}, "", middleware.DeferConfig{})
	require.ErrorContains(t, err, "queue has no name")
	_, err = middleware.DeferWith(&recordingStore{}, strings.Repeat("q", 300), middleware.DeferConfig{})
	require.ErrorContains(t, err, "use at most 249 bytes")
	_, err = middleware.DeferWith((*recordingStore)(nil), "fraud", middleware.DeferConfig{})
	require.ErrorContains(t, err, "store is nil")
	require.PanicsWithError(t, "defer: the queue has no name", func() { middleware.Defer(&recordingStore{}, "") })
	require.PanicsWithError(t, "defer: the store is nil", func() { middleware.Defer(nil, "fraud") })
	_, err = middleware.NewInbox((*inboxstore.Store)(nil), middleware.InboxConfig{}, nil)
	require.ErrorContains(t, err, "store is nil")
	_, err = middleware.NewInbox(&inboxstore.Store{}, middleware.InboxConfig{}, (*watermill.StdLoggerAdapter)(nil))
	require.NoError(t, err, "which logs nothing")
	_, err = middleware.DeferWith(&recordingStore{}, "fraud", middleware.DeferConfig{Retry: postbox.RetryProfile{Base: -1}})
	require.ErrorContains(t, err, "Base and Cap")
}
