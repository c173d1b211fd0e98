package queue_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// exhausting is a statement for more than there is room for. PostgreSQL has no limit with the code
// of a full disk, so its error is made up.
func exhausting(ctx context.Context, b *queueBench, tx *sql.Tx) error {
	if b.Dialect == postbox.PostgreSQL {
		return &pq.Error{Code: "53100", Message: "No space left on device"}
	}
	for _, statement := range []string{
		"SET SESSION max_heap_table_size = 16384",
		"DROP TEMPORARY TABLE IF EXISTS large",
		"CREATE TEMPORARY TABLE large (c CHAR(200)) ENGINE = MEMORY",
		"INSERT INTO large WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n",
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// exhaustingModes start a worker whose handler fails so for the messages called bad.
var exhaustingModes = map[string]func(b *queueBench, handle func(ctx context.Context, msg *message.Message) error){
	"single": func(b *queueBench, handle func(ctx context.Context, msg *message.Message) error) {
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error { return handle(msg.Context(), msg) })
	},
	"micro-batch": func(b *queueBench, handle func(ctx context.Context, msg *message.Message) error) {
		config := inboxtest.Quick(func(c *queue.Config) { c.MicroBatch = 4 })
		b.Start(config, func(msg *message.Message) error { return handle(msg.Context(), msg) })
	},
	"batch": func(b *queueBench, handle func(ctx context.Context, msg *message.Message) error) {
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }),
			func(ctx context.Context, messages []*message.Message) error {
				for _, msg := range messages {
					if err := handle(ctx, msg); err != nil {
						return err
					}
				}
				return nil
			})
	},
}

// Disk or memory is full for some messages only: they hold up no others, and come to their end once
// others get through.
func TestQueue_G7_a_message_that_exhausts_the_disk_or_memory_is_no_outage(t *testing.T) {
	t.Parallel()
	for mode, start := range exhaustingModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				bad := []string{"bad 0", "bad 1", "bad 2", "bad 3", "bad 4", "bad 5", "bad 6"}
				b.Put(bad...)
				b.Put(inboxtest.Numbers(20)...)
				start(b, func(ctx context.Context, msg *message.Message) error {
					if strings.HasPrefix(msg.UUID, "bad") {
						tx, _ := postbox.TxFromContext(ctx)
						return exhausting(ctx, b, tx)
					}
					return b.Effect(ctx, msg)
				})
				more := 0
				b.Eventually(func() bool {
					b.Put(fmt.Sprint("more ", more))
					more++
					return len(b.Dead()) == len(bad)
				}, "they are dead")
				b.Drained()
				require.ElementsMatch(t, bad, b.Dead())
				require.Len(t, b.Attempts(), 3*len(bad))
				require.Len(t, b.Effects(), 20+more)
			})
		})
	}
}

// The disk is full for all: nobody is blamed, and all are done once there is room.
func TestQueue_G7_a_full_disk_counts_no_attempt(t *testing.T) {
	t.Parallel()
	for mode, start := range exhaustingModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := inboxtest.Numbers(12)
				b.Put(ids...)
				var runs inboxtest.Journal
				full := make(chan struct{})
				start(b, func(ctx context.Context, msg *message.Message) error {
					runs.Add(msg.UUID)
					select {
					case <-full:
						return b.Effect(ctx, msg)
					default:
						tx, _ := postbox.TxFromContext(ctx)
						return exhausting(ctx, b, tx)
					}
				})
				b.Eventually(func() bool { return len(runs.All()) > 5*len(ids) }, "they are tried again")
				require.Equal(t, len(ids), b.Untried())
				close(full)
				b.Drained()
				require.ElementsMatch(t, ids, b.Effects())
				require.Empty(t, b.Attempts())
			})
		})
	}
}

// What one message needs is away, and its handler says so each time: the others have their turn.
func TestQueue_G7_an_outage_for_one_message_starves_no_other(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("bad")
		b.Put(inboxtest.Numbers(30)...)
		b.Start(inboxtest.Quick(awayIsOutage), func(msg *message.Message) error {
			if msg.UUID == "bad" {
				return errAway
			}
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == 1 }, "the others are done")
		require.Equal(t, 1, b.Untried())
	})
}
