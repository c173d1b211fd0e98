package inboxstore_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// neverReturns are the ways in which a function of the user may end without returning.
var neverReturns = map[string]func(){
	"panics":             func() { panic("oh no") },
	"ends its goroutine": runtime.Goexit,
}

// The second message is the probe of a paused queue. If a function of the user does not return, the queue must not wait for the end of the
// probe for ever.
func TestQueue_G7_a_probe_whose_Classify_does_not_return_makes_room_for_another(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		for mode, inTx := range map[string]bool{"in a transaction": true, "without one": false} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					b.put("1", "2", "3")
					config := quick(func(c *inboxstore.QueueConfig) { c.Transactional, c.Concurrency = inTx, 1 })
					config.Classify = func(err error) postbox.ErrorClass {
						if errors.Is(err, errHandler) {
							leave()
						}
						return postbox.Outage
					}
					var calls atomic.Int32
					b.start(config, func(*message.Message) error {
						switch calls.Add(1) {
						case 1:
							return errAway
						case 2:
							return errHandler
						default:
							return nil
						}
					})
					b.drained()
					require.Len(t, b.attempts(), 1)
					require.Empty(t, b.dead())
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
				b.put(ids...)
				var calls atomic.Int32
				b.start(quick(func(c *inboxstore.QueueConfig) {
					awayIsOutage(c)
					c.Transactional, c.Concurrency = true, 1
				}), func(msg *message.Message) error {
					switch calls.Add(1) {
					case 1:
						return errAway
					case 2:
						postbox.AfterCommit(msg.Context(), leave)
					}
					return b.effect(msg.Context(), msg)
				})
				b.drained()
				require.ElementsMatch(t, ids, b.effects())
				require.Empty(t, b.attempts(), "the message was handled")
			})
		})
	}
}

// A function that does not return for one message counts against no other message of its batch.
func TestBatch_G7_a_Classify_or_Rule_that_does_not_return_blames_no_neighbour(t *testing.T) {
	t.Parallel()
	for name, leave := range neverReturns {
		for function, config := range map[string]inboxstore.QueueConfig{
			"Classify": {Classify: func(error) postbox.ErrorClass { leave(); return postbox.Unclassified }},
			"Rule":     {Rule: func(inboxstore.RuleParams) error { leave(); return nil }},
		} {
			t.Run(function+" "+name, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					ids := numbers(8)
					b.put(ids...)
					b.batch(quickBatch(func(c *inboxstore.BatchConfig) {
						c.QueueConfig.Transactional, c.QueueConfig.Classify, c.QueueConfig.Rule = true, config.Classify, config.Rule
					}), func(ctx context.Context, messages []*message.Message) error {
						if err := b.batchEffects(ctx, messages); err != nil || !oneOf(messages, ids[:1]) {
							return err
						}
						return errHandler
					})
					b.drained()
					require.Equal(t, ids[:1], b.dead())
					require.Len(t, b.attempts(), 3)
					require.ElementsMatch(t, ids[1:], b.effects())
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
				b.put("1")
				var calls atomic.Int32
				outbox, err := forwarder.NewPublisher(b.On(b.db), forwarder.PublisherConfig{OrderingKey: func(string, *message.Message) string {
					if calls.Add(1) == 1 {
						leave()
					}
					return ""
				}}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, outbox.Close()) }()
				config := quick(func(c *inboxstore.QueueConfig) { c.PoisonOutbox, c.PoisonTopic = outbox, "poison" })
				b.start(config, func(*message.Message) error { return postbox.Permanent(errHandler) })
				b.drained()
				require.Equal(t, []string{"1"}, b.dead())
				require.Equal(t, 1, b.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'poison'"))
			})
		})
	}
}
