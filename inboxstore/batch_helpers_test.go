package inboxstore_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// quickBatch is a configuration for impatient tests: whatever has been read is a batch at once.
func quickBatch(change func(*inboxstore.BatchConfig)) inboxstore.BatchConfig {
	config := inboxstore.BatchConfig{Age: time.Microsecond, QueueConfig: quick(nil)}
	if change != nil {
		change(&config)
	}
	return config
}

// parts are the batches that a handler was called with, and what it did to each.
type parts struct {
	mu    sync.Mutex
	calls [][]string // ids
}

// add returns the ids of a batch, and the number of the call.
func (p *parts) add(messages []*message.Message) (ids []string, call int) {
	for _, msg := range messages {
		ids = append(ids, msg.UUID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, ids)
	return ids, len(p.calls)
}

func (p *parts) all() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// batchProcess is a batch handler at work.
type batchProcess struct {
	*inboxstore.Batch
	done chan error
}

func (b *queueBench) batch(config inboxstore.BatchConfig, handle inboxstore.BatchHandler) *batchProcess {
	b.t.Helper()
	batch, err := inboxstore.NewBatch(b.store, "q", handle, config, b.logger)
	require.NoError(b.t, err)
	p := &batchProcess{Batch: batch, done: make(chan error, 1)}
	go func() { p.done <- batch.Run(context.Background()) }()
	b.t.Cleanup(func() {
		require.NoError(b.t, p.Close())
		require.NoError(b.t, <-p.done)
	})
	return p
}

// batchEffects writes one for each message, in the transaction that the context carries.
func (b *queueBench) batchEffects(ctx context.Context, messages []*message.Message) error {
	for _, msg := range messages {
		if err := b.effect(ctx, msg); err != nil {
			return err
		}
	}
	return nil
}

// age makes the messages that are stored by now older.
func (b *queueBench) age(by time.Duration) {
	b.t.Helper()
	b.Exec(b.t, "UPDATE postbox_messages SET created_at = created_at - ?", by.Microseconds())
}

// now is the time by the database's clock, in microseconds.
func (b *queueBench) now() int {
	b.t.Helper()
	return b.Count(b.t, map[postbox.Dialect]string{
		postbox.PostgreSQL: "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		postbox.MySQL:      "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		postbox.SQLite:     "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
	}[b.Dialect])
}

// createdAt is when a message was stored.
func (b *queueBench) createdAt(id string) int {
	b.t.Helper()
	return b.Count(b.t, "SELECT created_at FROM postbox_messages WHERE topic = 'q' AND message_id = ?", []byte(id))
}
