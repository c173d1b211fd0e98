package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// spoil changes a message as a handler does that decrypts it in place, and reports one that was
// changed before.
func spoil(msg *message.Message) error {
	if string(msg.Payload) != "payload of "+msg.UUID || msg.Metadata.Get("spoilt") != "" {
		return errors.New("it was changed before")
	}
	copy(msg.Payload, "decrypted")
	msg.Metadata.Set("spoilt", "yes")
	return nil
}

// A handler runs again after a conflict, or since it failed together with others: with the message
// as it was stored, whatever it has done to it.
func TestQueue_G7_each_run_has_the_message_as_it_was_stored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*queue.Config){
		"one by one":  inboxtest.Transactional,
		"micro-batch": func(c *queue.Config) { c.Transactional, c.MicroBatch = true, 10 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("1", "2", "3")
				var conflicts, errs atomic.Int32
				b.Start(inboxtest.Quick(change), func(msg *message.Message) error {
					if err := spoil(msg); err != nil {
						return err
					}
					switch {
					case msg.UUID == "2" && conflicts.Add(1) <= inboxtest.ManyConflicts:
						return inboxtest.RaiseConflict(msg.Context(), b.Dialect)
					case msg.UUID == "3" && errs.Add(1) == 1:
						return errors.New("it failed")
					}
					return nil
				})
				b.Drained()
				for _, failure := range b.Failures() {
					require.Contains(t, failure, "it failed")
				}
				require.Empty(t, b.Dead())
			})
		})
	}
}

func TestBatch_G7_each_run_has_the_messages_as_they_were_stored(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put(inboxtest.Numbers(6)...)
		var conflicts, errs atomic.Int32
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }),
			func(ctx context.Context, messages []*message.Message) error {
				for _, msg := range messages {
					if err := spoil(msg); err != nil {
						return err
					}
				}
				switch {
				case inboxtest.OneOf(messages, []string{"003"}) && conflicts.Add(1) <= inboxtest.ManyConflicts:
					return inboxtest.RaiseConflict(ctx, b.Dialect)
				case inboxtest.OneOf(messages, []string{"005"}) && errs.Add(1) == 1:
					return errors.New("it failed")
				}
				return nil
			})
		b.Drained()
		require.Empty(t, b.Failures())
		require.Empty(t, b.Dead())
	})
}
