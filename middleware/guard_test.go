package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// guardBench is a store whose handlers write effects, each under a name of its own.
type guardBench struct {
	*testdb.Database
	t     *testing.T
	store *inboxstore.Store
}

func newGuardBench(t *testing.T, database *testdb.Database) *guardBench {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
	looking := *database
	looking.DB = database.Open(t)
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return &guardBench{Database: &looking, t: t, store: store}
}

// failsOnce returns a handler that writes an effect and then fails, and succeeds when it is called
// again.
func (b *guardBench) failsOnce() (h message.HandlerFunc, calls *atomic.Int32) {
	calls = new(atomic.Int32)
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := b.write(msg.Context(), msg.UUID); err != nil {
			return nil, err
		}
		if calls.Add(1) == 1 {
			return nil, errHandler
		}
		return nil, nil
	}, calls
}

func (b *guardBench) write(ctx context.Context, id string) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return errors.New("no transaction in the context")
	}
	_, err := tx.ExecContext(ctx, b.Bind("INSERT INTO effects VALUES (?)"), id)
	return err
}

func (b *guardBench) subscriber() message.Subscriber {
	b.t.Helper()
	return b.subscriberWith(func(c *queue.Config) { c.Transactional = true })
}

func (b *guardBench) subscriberWith(change func(*queue.Config)) message.Subscriber {
	b.t.Helper()
	config := queue.Config{
		Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond},
		Retry:  postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: 5 * time.Millisecond},
	}
	change(&config)
	subscriber, err := queue.NewSubscriber(b.store, config, nil)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, subscriber.Close()) })
	return subscriber
}

func (b *guardBench) put(queue string, msg *message.Message) {
	b.t.Helper()
	_, err := b.store.Defer(b.t.Context(), queue, inboxstore.Key{Consumer: queue, MessageID: msg.UUID}, msg)
	require.NoError(b.t, err)
}

func (b *guardBench) inbox(consumer string) message.HandlerMiddleware {
	b.t.Helper()
	inbox, err := middleware.NewInbox(b.store, middleware.InboxConfig{
		Consumer: consumer, Retry: postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: time.Millisecond},
	}, nil)
	require.NoError(b.t, err)
	return inbox.Middleware
}

func (b *guardBench) effects(id string) int {
	b.t.Helper()
	return b.Count(b.t, "SELECT COUNT(*) FROM effects WHERE id = ?", id)
}

func (b *guardBench) failures() int {
	b.t.Helper()
	return b.Count(b.t, "SELECT COUNT(*) FROM postbox_failures")
}

func (b *guardBench) eventually(condition func() bool, what string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); <-time.After(testdb.PollPause) {
		require.True(b.t, time.Now().Before(deadline), what)
	}
}

// errorEaters are Watermill's middlewares that do something else with an error than return it.
func errorEaters(t *testing.T) map[string]message.HandlerMiddleware {
	t.Helper()
	poison := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { _ = poison.Close() })
	poisonQueue, err := wmmiddleware.PoisonQueue(poison, "poison")
	require.NoError(t, err)
	return map[string]message.HandlerMiddleware{
		"Retry":        wmmiddleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware,
		"PoisonQueue":  poisonQueue,
		"IgnoreErrors": wmmiddleware.NewIgnoreErrors([]error{errHandler}).Middleware,
	}
}

// A transaction in which the handler has returned an error never commits, whatever stands around
// it: the attempt is recorded, and the next one, in a transaction of its own, has the effect.
func TestGuard_G4_queue_never_commits_what_a_failed_handler_wrote(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		for name, eater := range errorEaters(t) {
			for place, chain := range map[string][]message.HandlerMiddleware{
				"outside": {eater, middleware.Process},
				"inside":  {middleware.Process, eater, middleware.Guard},
				"alone":   {eater, middleware.Guard},
			} {
				queue, before := name+" "+place, b.failures()
				b.put(queue, message.NewMessage(queue, nil))
				handler, calls := b.failsOnce()
				router := startRouter(t, func(router *message.Router) {
					router.AddConsumerHandler(queue, queue, b.subscriber(), func(msg *message.Message) error {
						_, err := handler(msg)
						return err
					}).AddMiddleware(chain...)
				})
				b.eventually(func() bool { return b.effects(queue) > 0 }, queue)
				require.NoError(t, router.Close())
				require.Equal(t, 1, b.effects(queue), queue)
				require.Equal(t, before+1, b.failures(), "%s: calls %d", queue, calls.Load())
			}
		}
	})
}

// The same within an inbox, in a transaction of its own and in a savepoint.
func TestGuard_G4_inbox_never_commits_what_a_failed_handler_wrote(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		for name, eater := range errorEaters(t) {
			for _, joined := range []bool{false, true} {
				id, before := name, b.failures()
				if joined {
					id += ", in a savepoint"
				}
				handler, _ := b.failsOnce()
				handler = b.inbox(id)(eater(middleware.Guard(handler)))
				deliver := func() error {
					msg := message.NewMessage(id, nil)
					msg.SetContext(t.Context())
					if !joined {
						_, err := handler(msg)
						return err
					}
					tx, err := database.DB.BeginTx(t.Context(), nil)
					require.NoError(t, err)
					msg.SetContext(postbox.ContextWithTx(t.Context(), tx))
					_, err = handler(msg)
					require.NoError(t, tx.Commit())
					return err
				}
				require.ErrorIs(t, deliver(), errHandler, id)
				require.Zero(t, b.effects(id), id)
				require.Equal(t, before+1, b.failures(), id)
				require.NoError(t, deliver(), id)
				require.Equal(t, 1, b.effects(id), id)
			}
		}
	})
}

// Around an inbox, each try is a delivery of its own: it is counted, and has a transaction of its
// own.
func TestInbox_G4_error_eaters_around_it_change_no_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newGuardBench(t, database)
		for name, eater := range errorEaters(t) {
			before := b.failures()
			handler, _ := b.failsOnce()
			msg := message.NewMessage(name, nil)
			msg.SetContext(t.Context())
			_, err := eater(b.inbox(name)(handler))(msg)
			require.NoError(t, err, name)
			effects := 0
			if name == "Retry" {
				effects = 1
			}
			require.Equal(t, effects, b.effects(name), name)
			require.Equal(t, before+1, b.failures(), name)
		}
	})
}

// order is a command.
type order struct{ ID string }

// processOrders has a router's handler work off the orders that come from the subscriber. The first
// time it fails, and the CQRS component acknowledges that.
func (b *guardBench) processOrders(subscriber message.Subscriber, around ...message.HandlerMiddleware) {
	b.t.Helper()
	var calls atomic.Int32
	startRouter(b.t, func(router *message.Router) {
		processor, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "orders", nil },
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return subscriber, nil
			},
			Marshaler: cqrs.JSONMarshaler{}, Logger: watermill.NopLogger{}, AckCommandHandlingErrors: true, OnHandle: middleware.GuardCommands,
		})
		require.NoError(b.t, err)
		added, err := processor.AddHandler(cqrs.NewCommandHandler("place", func(ctx context.Context, o *order) error {
			if err := b.write(ctx, o.ID); err != nil || calls.Add(1) > 1 {
				return err
			}
			return errHandler
		}))
		require.NoError(b.t, err)
		added.AddMiddleware(around...)
	})
}

// Watermill's CQRS component drops the error of a command's handler where it is told to, before any
// middleware sees it.
func TestGuardCommands_G4_never_commits_a_command_whose_error_was_acknowledged(t *testing.T) {
	t.Parallel()
	for place, begin := range map[string]func(b *guardBench, command *message.Message){
		"queue": func(b *guardBench, command *message.Message) {
			b.put("orders", command)
			b.processOrders(b.subscriber())
		},
		"inbox": func(b *guardBench, command *message.Message) {
			broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
			b.t.Cleanup(func() { _ = broker.Close() })
			b.processOrders(broker, b.inbox("orders"))
			require.NoError(b.t, broker.Publish("orders", command))
		},
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newGuardBench(t, database)
				command, err := cqrs.JSONMarshaler{}.Marshal(order{ID: "1"})
				require.NoError(t, err)
				begin(b, command)
				b.eventually(func() bool { return b.effects("1") > 0 }, "the command is handled")
				require.Equal(t, 1, b.effects("1"))
				require.Equal(t, 1, b.failures())
			})
		})
	}
}

// Without a transaction there is nothing to guard: Watermill's Retry works as its users expect.
func TestGuard_without_a_transaction_changes_nothing(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := errorEaters(t)["Retry"](middleware.Guard(func(*message.Message) ([]*message.Message, error) {
		if calls++; calls == 1 {
			return nil, errHandler
		}
		return nil, nil
	}))
	msg := message.NewMessage("1", nil)
	_, err := handler(msg)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.PanicsWithValue(t, "oh", func() {
		_, _ = middleware.Guard(func(*message.Message) ([]*message.Message, error) { panic("oh") })(msg)
	})
}
