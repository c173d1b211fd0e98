package queue_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// putEvil stores a message for each of the errors, and an innocent one behind it.
func (b *queueBench) putEvil() (evil, innocent []string) {
	b.T.Helper()
	for id := range inboxtest.EvilErrors {
		b.Put(id, id[:2]+"behind", "beside "+id)
		evil, innocent = append(evil, id), append(innocent, id[:2]+"behind", "beside "+id)
	}
	return evil, innocent
}

// buriedAlone waits until all innocent messages are done, and the others are dead with a reason.
func (b *queueBench) buriedAlone(evil, innocent []string) {
	b.T.Helper()
	b.Drained()
	require.ElementsMatch(b.T, evil, b.Dead())
	require.ElementsMatch(b.T, innocent, b.Effects())
	for _, text := range b.Failures() {
		require.NotEmpty(b.T, text)
	}
}

func TestQueue_G6_an_error_that_panics_is_a_failed_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, change := range map[string]func(*queue.Config){
			"sequential":    func(*queue.Config) {},
			"transactional": func(c *queue.Config) { c.Transactional = true },
			"micro-batches": func(c *queue.Config) { c.MicroBatch = 5 },
			"of a rule": func(c *queue.Config) {
				c.MapError = func(p queue.Failure) error { return inboxtest.EvilErrors[p.Message.UUID] }
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newQueueBench(t, inboxtest.Another(t, database))
				evil, innocent := b.putEvil()
				b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
					if err := inboxtest.EvilErrors[msg.UUID]; err != nil {
						return err
					}
					return b.effectIn(msg)
				})
				b.buriedAlone(evil, innocent)
			})
		}
	})
}

// effectIn writes an effect, in the transaction of the message if there is one.
func (b *queueBench) effectIn(msg *message.Message) error {
	if _, inTx := postbox.TxFromContext(msg.Context()); inTx {
		return b.Effect(msg.Context(), msg)
	}
	_, err := b.DB.ExecContext(msg.Context(), b.Bind("INSERT INTO effects VALUES (0, 0, ?)"), msg.UUID)
	return err
}

func TestBatch_G6_an_error_that_panics_is_a_failed_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, partial := range map[string]bool{"of the batch": false, "of a message": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newQueueBench(t, inboxtest.Another(t, database))
				evil, innocent := b.putEvil()
				config := inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true })
				b.Batch(config, func(ctx context.Context, messages []*message.Message) error {
					var failed queue.BatchError
					for _, msg := range messages {
						err := inboxtest.EvilErrors[msg.UUID]
						if err != nil && !partial {
							return err
						}
						failed.Fail(msg, err)
					}
					if err := failed.OrNil(); err != nil {
						return err
					}
					return b.BatchEffects(ctx, messages)
				})
				b.buriedAlone(evil, innocent)
			})
		}
	})
}

func TestBatchError_that_is_nil_is_no_error(t *testing.T) {
	t.Parallel()
	var none *queue.BatchError
	require.NoError(t, none.OrNil())
	require.Contains(t, none.Error(), "OrNil")
}
