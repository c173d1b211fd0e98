package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// neverReturns are the ways in which a function of the user may end without returning.
var neverReturns = map[string]func(){
	"panics": func() { panic("oh no") },
}

// The second message is the probe of a paused queue. If a function of the user does not return, the
// queue must not wait for the end of the probe for ever.
func TestQueue_G7_a_probe_whose_Classify_does_not_return_makes_room_for_another(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		for mode, inTx := range map[string]bool{"in a transaction": true, "without one": false} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					b.Put("1", "2", "3")
					config := inboxtest.Quick(func(c *queue.Config) { c.Transactional, c.Concurrency = inTx, 1 })
					config.Classify = func(err error) postbox.ErrorClass {
						if errors.Is(err, inboxtest.ErrHandler) {
							leave()
						}
						return postbox.Outage
					}
					var calls atomic.Int32
					b.Start(config, func(*message.Message) error {
						switch calls.Add(1) {
						case 1:
							return errAway
						case 2:
							return inboxtest.ErrHandler
						default:
							return nil
						}
					})
					b.Drained()
					require.Len(t, b.Attempts(), 1)
					require.Empty(t, b.Dead())
				})
			})
		}
	}
}

func TestQueue_G7_a_probe_whose_hook_does_not_return_makes_room_for_another(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := []string{"1", "2", "3"}
				b.Put(ids...)
				var calls atomic.Int32
				b.Start(inboxtest.Quick(func(c *queue.Config) {
					awayIsOutage(c)
					c.Transactional, c.Concurrency = true, 1
				}), func(msg *message.Message) error {
					switch calls.Add(1) {
					case 1:
						return errAway
					case 2:
						postbox.AfterCommit(msg.Context(), leave)
					}
					return b.Effect(msg.Context(), msg)
				})
				b.Drained()
				require.ElementsMatch(t, ids, b.Effects())
				require.Empty(t, b.Attempts(), "the message was handled")
			})
		})
	}
}

// A function that does not return for one message counts against no other message of its batch.
func TestBatch_G7_a_Classify_or_MapError_that_does_not_return_blames_no_other_message(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		for function, config := range map[string]queue.Config{
			"Classify": {Classify: func(error) postbox.ErrorClass { leave(); return postbox.Unclassified }},
			"MapError": {MapError: func(queue.Failure) error { leave(); return nil }},
		} {
			t.Run(function+" "+name, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					ids := inboxtest.Numbers(8)
					b.Put(ids...)
					b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) {
						c.Worker.Transactional, c.Worker.Classify, c.Worker.MapError = true, config.Classify, config.MapError
					}), func(ctx context.Context, messages []*message.Message) error {
						if err := b.BatchEffects(ctx, messages); err != nil || !inboxtest.OneOf(messages, ids[:1]) {
							return err
						}
						return inboxtest.ErrHandler
					})
					b.Drained()
					require.Equal(t, ids[:1], b.Dead())
					require.Len(t, b.Attempts(), 3)
					require.ElementsMatch(t, ids[1:], b.Effects())
				})
			})
		}
	}
}

// The outbox of dead letters asks a function of the user for the key.
func TestQueue_G7_a_PoisonOutbox_that_does_not_return_is_asked_again(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put("1")
				var calls atomic.Int32
				outbox, err := forwarder.NewPublisher(b.On(b.Pool), forwarder.PublisherConfig{OrderingKey: func(string, *message.Message) string {
					if calls.Add(1) == 1 {
						leave()
					}
					return ""
				}}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, outbox.Close()) }()
				config := inboxtest.Quick(func(c *queue.Config) { c.Poison.Outbox, c.Poison.Topic = outbox, "poison" })
				b.Start(config, func(*message.Message) error { return postbox.Permanent(inboxtest.ErrHandler) })
				b.Drained()
				require.Equal(t, []string{"1"}, b.Dead())
				require.Equal(t, 1, b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'poison'"))
			})
		})
	}
}
