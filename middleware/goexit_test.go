package middleware_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

const countGoexit = "SELECT COUNT(*) FROM postbox_failures WHERE error LIKE '%runtime.Goexit%'"

// aside runs what may end its goroutine, and says whether it returned.
func aside(run func()) (returned bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run()
		returned = true
	}()
	<-ended
	return returned
}

func TestInbox_G4_a_handler_that_ends_its_goroutine_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // a transaction that stays open would have the only one
		inbox := inboxFor(t, database, nil)
		h := inbox.Middleware(handler(func() error { runtime.Goexit(); return nil }))
		for attempt := 1; attempt <= 3; attempt++ {
			msg := message.NewMessage("1", nil)
			require.False(t, aside(func() { _, _ = h(msg) }), "nothing can stop it")
			ended := msg.Nacked()
			if attempt == 3 {
				ended = msg.Acked() // it is a dead letter
			}
			select {
			case <-ended:
			default:
				require.Fail(t, "the message is neither acked nor nacked")
			}
			require.Equal(t, attempt, database.Count(t, countGoexit))
		}
		effects, receipts, dead := counts(t, database)
		require.Equal(t, []int{0, 0, 1}, []int{effects, receipts, dead})
		processed, err := inbox.Process(t.Context(), message.NewMessage("1", nil), handler(succeed))
		require.NoError(t, err)
		require.False(t, processed, "a dead letter is a duplicate from then on")
	})
}

func TestInbox_a_handler_that_ends_its_goroutine_is_counted_once_in_nested_inboxes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
		var calls atomic.Int32
		startRouter(t, func(router *message.Router) {
			router.AddConsumerHandler("billing", "orders", broker, func(msg *message.Message) error {
				if err := b.write(msg.Context(), msg.UUID); err != nil {
					return err
				}
				if calls.Add(1) == 1 {
					runtime.Goexit()
				}
				return nil
			}).AddMiddleware(b.inbox("outer"), b.inbox("inner"), middleware.Process, middleware.Guard)
		})
		require.NoError(t, broker.Publish("orders", message.NewMessage("1", nil)))
		require.Equal(t, 1, b.effects("1"))
		require.Equal(t, 1, b.failures())
		require.Equal(t, 1, b.Count(t, countGoexit))
	})
}

// The message of a handler that ends its goroutine must not block its key, or the others of its
// micro-batch.
func TestProcess_G3_a_handler_that_ends_its_goroutine_holds_up_no_queue(t *testing.T) {
	t.Parallel()
	for name, chain := range map[string]func(b *guardBench) []message.HandlerMiddleware{
		"Process": func(*guardBench) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{middleware.Process}
		},
		"Guard": func(*guardBench) []message.HandlerMiddleware { return []message.HandlerMiddleware{middleware.Guard} },
		"Process and Guard": func(*guardBench) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{middleware.Process, middleware.Guard}
		},
		"Process, inbox and Guard": func(b *guardBench) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{middleware.Process, b.inbox("inbox"), middleware.Guard}
		},
	} {
		for mode, change := range map[string]func(*queue.Config){
			"sequential":  func(c *queue.Config) { c.Transactional = true },
			"micro-batch": func(c *queue.Config) { c.Transactional, c.MicroBatch = true, 10 },
			"autocommit":  func(*queue.Config) {},
		} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newGuardBench(t, database)
					ids := []string{"bad", "good", "better"}
					for _, id := range ids {
						msg := message.NewMessage(id, nil)
						msg.Metadata.Set(postbox.MetadataOrderingKey, "key")
						b.put("orders", msg)
					}
					transactional := mode != "autocommit"
					var handled atomic.Int32
					startRouter(t, func(router *message.Router) {
						router.AddConsumerHandler("billing", "orders", b.subscriberWith(change), func(msg *message.Message) error {
							if transactional {
								if err := b.write(msg.Context(), msg.UUID); err != nil {
									return err
								}
							}
							if msg.UUID == "bad" {
								runtime.Goexit()
							}
							handled.Add(1)
							return nil
						}).AddMiddleware(chain(b)...)
					})
					b.eventually(func() bool {
						return b.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 0 && b.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1
					}, "the queue is worked off")
					failures := 3
					if !transactional && name == "Process, inbox and Guard" {
						failures = 5 // the queue counts two, and the third time the inbox has a dead letter and acks
					}
					require.Equal(t, failures, b.Count(t, countGoexit))
					require.Zero(t, b.effects("bad"))
					require.GreaterOrEqual(t, handled.Load(), int32(2))
					if transactional {
						require.Equal(t, 2, b.effects("good")+b.effects("better"))
					}
				})
			})
		}
	}
}
