package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// mostRuns is how often the handler of a message may run that has to do with a locked row, whether
// it is the message's own or that of another one of its batch: in the transaction that is given up,
// in the one that is committed, and once more, for example where a server is slow to end the first.
const mostRuns = 3

// Somebody has locked the row of one of many messages that share a transaction. It waits, and with
// it the message behind it of its key. All others are done meanwhile, in the next transaction, and
// nothing is said of them. Also covers G4.
func TestQueue_G3_a_locked_row_holds_up_no_other_message_of_its_batch(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(b *queueBench, runs *inboxtest.Journal){
		"batch": func(b *queueBench, runs *inboxtest.Journal) {
			config := inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true })
			b.Batch(config, func(ctx context.Context, messages []*message.Message) error {
				for _, msg := range messages {
					runs.Add(msg.UUID)
				}
				return b.BatchEffects(ctx, messages)
			})
		},
		"micro-batch": func(b *queueBench, runs *inboxtest.Journal) {
			b.Start(inboxtest.Quick(micro(30)), func(msg *message.Message) error {
				runs.Add(msg.UUID)
				return b.Effect(msg.Context(), msg)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				var named inboxtest.Journal
				b.Logger = errorLog{named: &named}
				const locked, behind = "k10/0", "k10/1"
				keys := make([]string, 20)
				for i := range keys {
					keys[i] = fmt.Sprintf("k%d", i)
				}
				ids := keysOf(1, keys...)
				b.Put(append(ids, behind)...)
				unlock := b.lockRow(locked)
				var runs inboxtest.Journal
				start(b, &runs)

				b.Eventually(func() bool { return b.Pending() == 2 }, "the others are done while the row is locked")
				others := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == locked })
				require.ElementsMatch(t, others, b.Effects())
				for _, id := range others {
					require.LessOrEqual(t, runs.Times(id), mostRuns, id)
				}
				b.Eventually(func() bool { return len(named.All()) > 0 }, "the log names the message")
				require.Equal(t, []string{locked}, named.All())

				unlock()
				b.Drained()
				require.Equal(t, []string{locked, behind}, b.Effects()[len(others):], "each once, in the order of their key")
				require.LessOrEqual(t, runs.Times(behind), mostRuns)
				require.Empty(t, b.Dead())
				require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
			})
		})
	}
}

// errorLog notes the messages that errors in the log name.
type errorLog struct {
	watermill.NopLogger
	named *inboxtest.Journal
}

// With keeps nothing: the id of a message stands in the line itself.
func (l errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l errorLog) Error(_ string, _ error, fields watermill.LogFields) {
	if id, ok := fields["message_uuid"].(string); ok {
		l.named.Add(id)
	}
}
