package pubsub_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	patience = 20 * time.Second
	tick     = 20 * time.Millisecond
)

func publisherFor(t *testing.T, database *testdb.Database, change func(*forwarder.PublisherConfig)) *forwarder.Publisher {
	t.Helper()
	config := forwarder.PublisherConfig{}
	if change != nil {
		change(&config)
	}
	publisher, err := forwarder.NewPublisher(database.Postbox(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// runForwarder runs a forwarder until the end of the test. Its pauses are short.
func runForwarder(t *testing.T, database postbox.Database, to message.Publisher, change func(*forwarder.Config)) {
	t.Helper()
	config := forwarder.Config{
		Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, ProbeMin: 5 * time.Millisecond, ProbeMax: 20 * time.Millisecond, Lease: 3 * time.Second},
		Retry:  postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond},
	}
	change(&config)
	fwd, err := forwarder.New(database, to, config, nil)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = fwd.Close()
		require.NoError(t, <-done)
	})
}

// inTx publishes in a transaction of its own.
func inTx(t *testing.T, db *sql.DB, publisher message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	require.NoError(t, postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range messages {
			msg.SetContext(ctx)
		}
		return publisher.Publish(topic, messages...)
	}))
}

func newMessage(uuid, key string) *message.Message {
	msg := message.NewMessage(uuid, []byte("payload of "+uuid))
	msg.Metadata.Set("partition_key", key)
	return msg
}
