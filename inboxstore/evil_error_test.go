package inboxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// evilErrors are errors of which a method panics, as those of nil pointers do, or that say nothing.
var evilErrors = map[string]error{
	"a/opError":       (*net.OpError)(nil),
	"b/pqError":       (*pq.Error)(nil),
	"c/wrapped":       fmt.Errorf("wrapped: %w", (*pq.Error)(nil)),
	"d/batchError":    (*inboxstore.BatchError)(nil),
	"e/empty":         &inboxstore.BatchError{},
	"f/handlerError":  &inboxstore.HandlerError{},
	"g/permanent":     &postbox.PermanentError{},
	"h/nilPermanent":  (*postbox.PermanentError)(nil),
	"i/nilRetryAfter": (*postbox.RetryAfterError)(nil),
}

// putEvil stores a message for each of the errors, and an innocent one behind it.
func (b *queueBench) putEvil() (evil, innocent []string) {
	b.t.Helper()
	for id := range evilErrors {
		b.put(id, id[:2]+"behind", "beside "+id)
		evil, innocent = append(evil, id), append(innocent, id[:2]+"behind", "beside "+id)
	}
	return evil, innocent
}

// buriedAlone waits until all innocent messages are done, and the others are dead with a reason.
func (b *queueBench) buriedAlone(evil, innocent []string) {
	b.t.Helper()
	b.drained()
	require.ElementsMatch(b.t, evil, b.dead())
	require.ElementsMatch(b.t, innocent, b.effects())
	for _, text := range b.failures() {
		require.NotEmpty(b.t, text)
	}
}

func TestQueue_G6_an_error_that_panics_is_a_failed_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, change := range map[string]func(*inboxstore.QueueConfig){
			"sequential":    func(*inboxstore.QueueConfig) {},
			"transactional": func(c *inboxstore.QueueConfig) { c.Transactional = true },
			"micro-batches": func(c *inboxstore.QueueConfig) { c.MicroBatch = 5 },
			"of a rule": func(c *inboxstore.QueueConfig) {
				c.Rule = func(p inboxstore.RuleParams) error { return evilErrors[p.Message.UUID] }
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newQueueBench(t, another(t, database))
				evil, innocent := b.putEvil()
				b.start(quick(change), func(msg *message.Message) error {
					if err := evilErrors[msg.UUID]; err != nil {
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
		return b.effect(msg.Context(), msg)
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
				b := newQueueBench(t, another(t, database))
				evil, innocent := b.putEvil()
				config := quickBatch(func(c *inboxstore.BatchConfig) { c.QueueConfig.Transactional = true })
				b.batch(config, func(ctx context.Context, messages []*message.Message) error {
					var failed inboxstore.BatchError
					for _, msg := range messages {
						err := evilErrors[msg.UUID]
						if err != nil && !partial {
							return err
						}
						failed.Fail(msg, err)
					}
					if err := failed.OrNil(); err != nil {
						return err
					}
					return b.batchEffects(ctx, messages)
				})
				b.buriedAlone(evil, innocent)
			})
		}
	})
}

func TestBatchError_that_is_nil_is_no_error(t *testing.T) {
	t.Parallel()
	var none *inboxstore.BatchError
	require.NoError(t, none.OrNil())
	require.Contains(t, none.Error(), "OrNil")
}

func TestStore_an_error_that_panics_comes_back_as_the_handlers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		store := storeFor(t, database, database.DB, nil)
		once := func(ctx context.Context, id string) {
			fresh, err := store.Once(ctx, inboxstore.Key{Consumer: "c", MessageID: id}, func(context.Context) error { return evilErrors[id] })
			require.False(t, fresh)
			var ofHandler *inboxstore.HandlerError
			require.ErrorAs(t, err, &ofHandler, id)
			require.NotEmpty(t, err.Error())
		}
		for id := range evilErrors {
			once(t.Context(), id)
		}
		tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		for id := range evilErrors {
			once(postbox.ContextWithTx(t.Context(), tx), id)
		}
	})
}
