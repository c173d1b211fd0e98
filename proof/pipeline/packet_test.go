package pipeline_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/queue"
)

const defaultPacket = 16 << 20 // of MariaDB

// withPacket opens a server whose max_allowed_packet is as it says.
func withPacket(t *testing.T, size int) *testdb.Database {
	t.Helper()
	m, err := testcluster.StartMariaDB(t.Context())
	clustertest.Require(t, m, err)
	database := behind(t, postbox.MySQL, "mysql", m.DSN("postbox")).Migrate(t)
	database.Exec(t, fmt.Sprintf("SET GLOBAL max_allowed_packet = %d", size))
	database.DB = database.Open(t) // sessions keep what was set when they began
	return database
}

// Messages within MaxPayload, and several small ones together, failed as they came, some with a
// connection that broke.
func TestPacket_MariaDB_refuses_a_max_allowed_packet_below_the_default(t *testing.T) {
	t.Parallel()
	database := withPacket(t, defaultPacket-1024)
	fwd, err := forwarder.New(database.Postbox(), &moody{}, forwarder.Config{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.ErrorContains(t, fwd.Run(ctx), "max_allowed_packet")
}

// moody is a broker that refuses until it is told otherwise.
type moody struct {
	mu        sync.Mutex
	willing   bool
	published []int // sizes
}

func (m *moody) Publish(_ string, messages ...*message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.willing {
		return postbox.Permanent(errors.New("not today"))
	}
	for _, msg := range messages {
		m.published = append(m.published, len(msg.Payload))
	}
	return nil
}

func (m *moody) Close() error { return nil }

func (m *moody) sizes() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.published
}

// They are stored, die and are requeued: with payloads that fill a packet, and with many that are
// larger together.
func TestPacket_MariaDB_carries_the_largest_messages_with_the_default(t *testing.T) {
	t.Parallel()
	database := withPacket(t, defaultPacket)
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	sizes := []int{defaultPacket - 1024, defaultPacket - 1024, 10}
	for range 40 {
		sizes = append(sizes, 1<<20)
	}
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		messages := make([]*message.Message, len(sizes))
		for i, size := range sizes {
			messages[i] = message.NewMessage(postbox.NewMessageID(), bytes.Repeat([]byte("'"), size))
			messages[i].SetContext(ctx)
		}
		return publisher.Publish("orders", messages...)
	}))
	to := &moody{}
	fwd, err := forwarder.New(database.Postbox(), to, forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond}}, nil)
	require.NoError(t, err)
	runs(t, fwd.Run, fwd.Close)
	letters := "SELECT COUNT(*) FROM postbox_dead_letters WHERE resolved_at IS NULL"
	require.Eventually(t, func() bool { return database.Count(t, letters) == len(sizes) }, patience, testdb.PollPause)

	to.mu.Lock()
	to.willing = true
	to.mu.Unlock()
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	requeued, err := operator.Requeue(t.Context(), admin.Filter{Target: admin.Outbox("outbox")}, admin.Again{})
	require.NoError(t, err)
	require.Equal(t, len(sizes), requeued)
	require.Eventually(t, func() bool { return len(to.sizes()) == len(sizes) }, patience, testdb.PollPause)
	require.ElementsMatch(t, sizes, to.sizes())
}

// A handler whose writes exceed the packet loses its connection each time. It fails alone.
func TestPacket_MariaDB_a_handler_that_exceeds_it_has_attempts(t *testing.T) {
	t.Parallel()
	database := withPacket(t, defaultPacket)
	publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{MaxPayload: 4 * defaultPacket}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	subscriber, err := queue.NewSubscriber(store, queue.Config{
		Transactional: true, Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond},
		Retry: postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: 20 * time.Millisecond},
	}, nil)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	router.AddConsumerHandler("billing", "billing", subscriber, func(msg *message.Message) error {
		size := 10
		if strings.HasPrefix(msg.UUID, "large") {
			size = defaultPacket + defaultPacket/2
		}
		out := message.NewMessage(msg.UUID, make([]byte, size))
		out.SetContext(msg.Context())
		return publisher.Publish("invoices", out)
	})
	runs(t, router.Run, router.Close)
	put := func(id string) {
		_, err := store.Defer(t.Context(), "billing", inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: id}, message.NewMessage(id, nil))
		require.NoError(t, err)
	}
	put("large 1")
	put("large 2")
	small := 0
	require.Eventually(t, func() bool {
		put(fmt.Sprint("small ", small))
		small++
		return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id LIKE 'large%'") == 2
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'invoices'") == small
	}, patience, testdb.PollPause)
}

// runs runs a component until the end of the test.
func runs(t *testing.T, run func(context.Context) error, end func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, end())
		require.NoError(t, <-done)
	})
}
