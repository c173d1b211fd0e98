package inboxstore_test

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
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
