package security_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// hostile are names that end a quotation, a statement, a line or a text, or are none on some
// database.
var hostile = []string{
	`'; DROP TABLE orders; --`, `"; DROP TABLE orders; --`, "`; DROP TABLE orders; --", `\'; DROP TABLE orders; --`, `orders\`,
	"x\n; DROP TABLE orders", "nul\x00byte", "no\xfftext", "größer 🐘 Ａ＇；", "%", "_", "{messages}", "?", "$1", ":a", "@a", "inbox queue",
	"NULL", strings.Repeat("x", 70), strings.Repeat("ä", 200), strings.Repeat("'", 300), strings.Repeat("x", 10_000),
}

// Whatever a name is, it is stored and found again as it is, or refused; it is never a statement.
func TestNames_are_no_SQL(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, createOrders)
		database.Exec(t, insertOrder, "victim")
		tables := database.Count(t, listTables(database))
		store, err := inboxstore.New(database.Postbox(), inboxstore.Config{CacheSize: -1}, nil)
		require.NoError(t, err)
		n := &names{Database: database, store: store}
		for i, name := range hostile {
			n.places(t, name)
			n.outboxes(t, name)
			n.topicsAndKeys(t, name, i)
			n.queues(t, name, i)
			n.consumers(t, name)
			n.operators(t, name)
		}
		require.NoError(t, store.Close())
		require.Equal(t, 1, database.Count(t, countOrders), "the victim is there")
		require.Equal(t, tables, database.Count(t, listTables(database)), "and no table more or less")
	})
}

type names struct {
	*testdb.Database
	store *inboxstore.Store
}

// places tries a name as prefix and as schema of the tables.
func (n *names) places(t *testing.T, name string) {
	t.Helper()
	for _, tables := range []postbox.Database{{DB: n.DB, Dialect: n.Dialect, Prefix: name}, {DB: n.DB, Dialect: n.Dialect, Schema: name}} {
		if name == "_" || name == "NULL" {
			continue // as good as any
		}
		require.Error(t, postbox.Migrate(t.Context(), tables), name)
		_, err := forwarder.NewPublisher(tables, forwarder.PublisherConfig{}, nil)
		require.Error(t, err, name)
		_, err = inboxstore.New(tables, inboxstore.Config{}, nil)
		require.Error(t, err, name)
		_, err = admin.New(tables, admin.Config{}, nil)
		require.Error(t, err, name)
	}
}

func (n *names) publisher(outbox string) (*forwarder.Publisher, error) {
	return forwarder.NewPublisher(n.Postbox(), forwarder.PublisherConfig{Outbox: outbox, AllowAutocommit: true}, nil)
}

// outboxes writes to an outbox of that name, whose forwarder also listens for it, and hears of it
// under the same name.
func (n *names) outboxes(t *testing.T, name string) {
	t.Helper()
	publisher, err := n.publisher(name)
	listen := ""
	if n.Driver == "postgres" {
		listen = n.DSN
	}
	received := make(chan string, 1)
	fwd, sameErr := forwarder.New(n.Postbox(), topics(received), forwarder.Config{Outbox: name, Tuning: postbox.Tuning{ListenDSN: listen}}, nil)
	require.Equal(t, err == nil, sameErr == nil, "%q: %v, %v", name, err, sameErr)
	if err != nil {
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(t.Context()) }()
	require.NoError(t, publisher.Publish("orders", message.NewMessage("1", nil)), name)
	require.Equal(t, "orders", <-received, name)
	require.NoError(t, fwd.Close())
	require.NoError(t, <-ended)
	require.NoError(t, publisher.Close())
}

// topics is a broker that tells the topics.
type topics chan string

func (c topics) Publish(topic string, _ ...*message.Message) error {
	c <- topic
	return nil
}

func (c topics) Close() error { return nil }

// topicsAndKeys writes a message with the name for its topic, its id and its key, and finds it by
// each.
func (n *names) topicsAndKeys(t *testing.T, name string, i int) {
	t.Helper()
	outbox := fmt.Sprintf("names %d", i)
	publisher, err := n.publisher(outbox)
	require.NoError(t, err)
	msg := message.NewMessage(name, []byte(name))
	msg.Metadata.Set(postbox.MetadataOrderingKey, name)
	msg.Metadata.Set(name, name)
	topic := name
	if err := publisher.Publish(topic, msg); err != nil {
		require.ErrorContains(t, err, "topic", name)
		topic = "orders"
		require.NoError(t, publisher.Publish(topic, msg), name)
	}
	require.NoError(t, publisher.Close())
	a := n.admin(t)
	found, _, err := a.Messages(t.Context(), admin.Filter{Target: admin.Outbox(outbox), Topic: topic, Key: name, MessageID: name})
	require.NoError(t, err, name)
	require.Len(t, found, 1, name)
	require.Equal(t, []string{topic, name, name}, []string{found[0].Topic, found[0].Key, found[0].MessageID})
}

func (n *names) admin(t *testing.T) *admin.Admin {
	t.Helper()
	a, err := admin.New(n.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	return a
}

// queues defers to a queue of that name, and finds the message in it, and not in one of a name that
// is nearly the same.
func (n *names) queues(t *testing.T, name string, i int) {
	t.Helper()
	key := inboxstore.Key{Consumer: name, Topic: name, MessageID: fmt.Sprint(i)}
	fresh, err := n.store.Defer(t.Context(), name, key, message.NewMessage("1", nil))
	if err != nil {
		require.ErrorContains(t, err, "a name has at most", name)
		subscriber, err := queue.NewSubscriber(n.store, queue.Config{}, nil)
		require.NoError(t, err)
		require.Error(t, subscriber.SubscribeInitialize(name), name)
		_, err = subscriber.Subscribe(t.Context(), name)
		require.ErrorContains(t, err, "a name has at most", name)
		require.NoError(t, subscriber.Close())
		return
	}
	require.True(t, fresh, name)
	pending, err := inbox.CoreOf(n.store).PendingQueues(t.Context())
	require.NoError(t, err)
	require.Contains(t, pending, name)
	found, _, err := n.admin(t).Messages(t.Context(), admin.Filter{Target: admin.Queue(name)})
	require.NoError(t, err)
	require.Len(t, found, 1, name)
}

// consumers handles, fails and buries under that name.
func (n *names) consumers(t *testing.T, name string) {
	t.Helper()
	handle := func(context.Context) error { return nil }
	key := inboxstore.Key{Consumer: name, Topic: name, MessageID: name}
	for _, want := range []bool{true, false} {
		fresh, err := n.store.Once(t.Context(), key, handle)
		require.NoError(t, err, name)
		require.Equal(t, want, fresh, name)
	}
	poison := key
	poison.MessageID += " poison"
	attempts, err := n.store.RecordFailure(t.Context(), poison, fmt.Errorf("%s", name))
	require.NoError(t, err, name)
	require.Equal(t, 1, attempts)
	msg := message.NewMessage(poison.MessageID, nil)
	msg.Metadata.Set(postbox.MetadataOrderingKey, name)
	require.NoError(t, n.store.Bury(t.Context(), poison, msg, attempts, fmt.Errorf("%s", name)), name)
	letters, _, err := n.admin(t).DeadLetters(t.Context(), admin.Filter{MessageID: poison.MessageID})
	require.NoError(t, err, name)
	require.Len(t, letters, 1, name)
	require.Equal(t, name, letters[0].Key)
}

// operators ask for a name, and pause and bury by it.
func (n *names) operators(t *testing.T, name string) {
	t.Helper()
	a, ctx, target := n.admin(t), t.Context(), admin.Outbox("names 0")
	_, _, err := a.Messages(ctx, admin.Filter{Target: target, After: name})
	require.Error(t, err, name)
	require.Error(t, a.Pause(ctx, admin.Filter{Target: admin.Outbox("missing " + name), All: true}), name)
	require.Error(t, a.Pause(ctx, admin.Filter{Target: admin.Queue("missing " + name), Key: name}), name)
	require.NoError(t, a.Pause(ctx, admin.Filter{Target: target, Key: name}), name)
	paused, err := a.Paused(ctx, target)
	require.NoError(t, err)
	require.Len(t, paused, 1, name)
	require.Equal(t, name, paused[0].Key)
	require.NoError(t, a.Resume(ctx, admin.Filter{Target: target, Key: name}), name)
	if a.Pause(ctx, admin.Filter{Target: target, Topic: name}) == nil { // not each name can be a topic
		topics, err := a.Paused(ctx, target)
		require.NoError(t, err)
		require.Len(t, topics, 1, name)
		require.Equal(t, name, topics[0].Topic)
		require.NoError(t, a.Resume(ctx, admin.Filter{Target: target, Topic: name}), name)
	}
	letters, _, err := a.DeadLetters(ctx, admin.Filter{MessageID: name + " poison"})
	require.NoError(t, err, name)
	require.NoError(t, errorOf(a.Resolve(ctx, admin.Filter{ID: letters[0].ID}, name)), name)
	_, _, _ = a.DeadLetters(ctx, admin.Filter{Topic: name, Consumer: name, From: time.Now()}) // text or an error, as the database takes it
}
