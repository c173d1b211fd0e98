package security_test

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Payload, metadata, id and key come out as they went in, whatever bytes they have: through an
// outbox, through a queue, and in the dead letters.
func TestBytes_survive_every_store(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		w := newWire(t, database)
		rapid.Check(t, func(r *rapid.T) {
			msg := anyMessage().Draw(r, "message")
			w.throughOutbox(r, msg)
			w.throughQueue(r, msg)
			w.throughDeadLetters(r, msg)
		})
	})
}

// anyText draws bytes of which many are no text.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(raw []byte) string { return string(raw) }),
		rapid.SampledFrom([]string{"", "\x00", "\xff\xfe", "a\x00b", `\x00`, `"`, `\`, "{}", "null", "\r\n", "\ufeff", "\xed\xa0\x80", "NULL"}),
	)
}

func anyMessage() *rapid.Generator[*message.Message] {
	return rapid.Custom(func(r *rapid.T) *message.Message {
		msg := message.NewMessage(anyText().Draw(r, "id"), []byte(anyText().Draw(r, "payload")))
		for key, value := range rapid.MapOfN(anyText(), anyText(), 0, 5).Draw(r, "metadata") {
			msg.Metadata.Set(key, value)
		}
		if key := anyText().Draw(r, "key"); key != "" {
			msg.Metadata.Set(postbox.MetadataOrderingKey, key)
		}
		return msg
	})
}

// wire is an outbox with its forwarder, and a queue with its subscriber.
type wire struct {
	ctx       context.Context //nolint:containedctx // the test's, which rapid does not hand on
	publisher *forwarder.Publisher
	published chan *message.Message
	store     *inboxstore.Store
	stored    <-chan *message.Message
	admin     *admin.Admin
	count     int
}

func newWire(t *testing.T, database *testdb.Database) *wire {
	t.Helper()
	w := &wire{ctx: t.Context(), published: make(chan *message.Message)}
	var err error
	w.publisher, err = forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	require.NoError(t, err)
	w.store, err = inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	w.admin, err = admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	fwd, err := forwarder.New(database.Postbox(), messages(w.published), forwarder.Config{}, nil)
	require.NoError(t, err)
	subscriber, err := queue.NewSubscriber(w.store, queue.Config{}, nil)
	require.NoError(t, err)
	w.stored, err = subscriber.Subscribe(t.Context(), "queue")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(w.ctx)) }()
	t.Cleanup(func() {
		require.NoError(t, fwd.Close())
		require.NoError(t, <-ended)
		require.NoError(t, subscriber.Close())
		require.NoError(t, w.store.Close())
		require.NoError(t, w.publisher.Close())
	})
	return w
}

// messages is a broker that hands each message on.
type messages chan *message.Message

func (c messages) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		c <- msg
	}
	return nil
}

func (c messages) Close() error { return nil }

func (w *wire) throughOutbox(r *rapid.T, msg *message.Message) {
	require.NoError(r, w.publisher.Publish("orders", msg))
	same(r, msg, receive(r, w.published), msg.UUID)
}

// key returns the key of a message. A message without an id has one from its handler, as from
// middleware.PayloadHash.
func (w *wire) key(msg *message.Message) inboxstore.Key {
	w.count++
	return inboxstore.Key{Consumer: "billing", Topic: fmt.Sprint("orders ", w.count), MessageID: cmp.Or(msg.UUID, "\xff")}
}

func (w *wire) throughQueue(r *rapid.T, msg *message.Message) {
	key := w.key(msg)
	fresh, err := w.store.Defer(w.ctx, "queue", key, msg)
	require.NoError(r, err)
	require.True(r, fresh)
	received := receive(r, w.stored)
	same(r, msg, received, key.MessageID)
	received.Ack()
}

func (w *wire) throughDeadLetters(r *rapid.T, msg *message.Message) {
	key := w.key(msg)
	require.NoError(r, w.store.Bury(w.ctx, key, msg, 1, fmt.Errorf("%s", msg.Payload)))
	letters, _, err := w.admin.DeadLetters(w.ctx, admin.Filter{Topic: key.Topic})
	require.NoError(r, err)
	require.Len(r, letters, 1)
	letter, err := w.admin.DeadLetter(w.ctx, letters[0].ID)
	require.NoError(r, err)
	require.Equal(r, msg.Metadata.Get(postbox.MetadataOrderingKey), letter.Key)
	received := message.NewMessage(letter.MessageID, letter.Payload)
	received.Metadata = letter.Metadata
	same(r, msg, received, key.MessageID)
}

func receive(r *rapid.T, from <-chan *message.Message) *message.Message {
	select {
	case msg := <-from:
		return msg
	case <-time.After(patience):
		require.FailNow(r, "nothing came")
		return nil
	}
}

// same compares what came out with what went in; a message without an id gets one on its way.
func same(r *rapid.T, want, got *message.Message, id string) {
	if id != "" {
		require.Equal(r, id, got.UUID)
	}
	require.Equal(r, string(want.Payload), string(got.Payload))
	require.Equal(r, want.Metadata, got.Metadata)
}
