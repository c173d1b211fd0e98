package pgxbox_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/pgxbox"
	"github.com/postbox-go/watermill-postbox/queue"
)

// put stores messages of these keys in a queue, in one call each.
func (s *service) put(store *inboxstore.Store, name string, n int, key func(i int) string) (ids []string) {
	s.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%03d", name, i)
		msg := message.NewMessage(id, []byte("{}"))
		msg.Metadata.Set(postbox.MetadataOrderingKey, key(i))
		fresh, err := store.Defer(s.t.Context(), name, inboxstore.Key{Consumer: name, MessageID: id}, msg)
		require.NoError(s.t, err)
		require.True(s.t, fresh)
		ids = append(ids, id)
	}
	return ids
}

// work works a queue off until the test ends.
func (s *service) work(store *inboxstore.Store, name string, config queue.Config, handle func(msg *message.Message) error) {
	s.t.Helper()
	config.Transactional = true
	subscriber, err := queue.NewSubscriber(store, config, nil)
	require.NoError(s.t, err)
	messages, err := subscriber.Subscribe(context.Background(), name)
	require.NoError(s.t, err)
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for msg := range messages {
			handlers.Go(func() {
				if err := handle(msg); err != nil {
					queue.Fail(msg.Context(), err)
					msg.Nack()
					return
				}
				msg.Ack()
			})
		}
	})
	s.t.Cleanup(func() {
		require.NoError(s.t, subscriber.Close())
		handlers.Wait()
	})
}

// background runs something until the test ends.
func (s *service) background(run func(context.Context) error, end func() error) {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- run(context.Background()) }()
	s.t.Cleanup(func() {
		require.NoError(s.t, end())
		require.NoError(s.t, <-done)
	})
}

func TestQueue_G3_G4_a_sequential_queue_and_a_batch_have_their_effects_once_and_in_order(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		store := s.store()
		retry := postbox.RetryProfile{Attempts: 9, Base: time.Millisecond, Cap: 5 * time.Millisecond}
		var order sync.Map // of each key
		key := func(i int) string { return fmt.Sprint("key-", i%5) }
		wanted := s.put(store, "single", 40, key)
		var failures atomic.Int32
		s.work(store, "single", queue.Config{Concurrency: 4, Retry: retry}, func(msg *message.Message) error {
			if err := s.effect(msg.Context(), msg.UUID); err != nil {
				return err
			}
			if failures.Add(1)%7 == 0 {
				return errHandler
			}
			of := msg.Metadata.Get(postbox.MetadataOrderingKey)
			handled, _ := order.Load(of)
			before, _ := handled.([]string)
			order.Store(of, append(slices.Clone(before), msg.UUID))
			return nil
		})

		wanted = append(wanted, s.put(store, "batch", 60, key)...)
		batch, err := queue.NewBatch(store, "batch", func(ctx context.Context, messages []*message.Message) error {
			tx, found := pgxbox.TxFromContext(ctx)
			if !found {
				return postbox.ErrNoTransaction
			}
			for _, msg := range messages {
				if err := s.write(ctx, tx, msg.UUID); err != nil {
					return err
				}
			}
			return nil
		}, queue.BatchConfig{Size: 16, Age: time.Millisecond, Worker: queue.Config{Transactional: true, Retry: retry}}, nil)
		require.NoError(t, err)
		s.background(batch.Run, batch.Close)

		s.eventually(func() bool { return s.pending() == 0 }, "the queues are empty")
		s.wrote(wanted...)
		order.Range(func(_, handled any) bool {
			require.IsIncreasing(t, handled)
			return true
		})
	})
}

func TestForwarder_G1_publishes_what_was_committed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		publisher, to := s.publisher(), &broker{}
		fwd, err := forwarder.New(s.database, to, forwarder.Config{}, nil)
		require.NoError(t, err)
		s.background(fwd.Run, fwd.Close)
		var producers sync.WaitGroup
		for producer := range 4 {
			producers.Go(func() {
				for i := range 25 {
					if err := pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, _ pgx.Tx) error {
						return published(ctx, publisher, fmt.Sprintf("%d-%02d", producer, i))
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		producers.Wait()
		s.eventually(func() bool { return s.pending() == 0 }, "the outbox is empty")
		require.Len(t, to.distinct(), 100)
	})
}

// Sixteen handlers on a pool of four take longer than a lease, which is renewed meanwhile, so each
// message is handled once.
func TestQueue_G6_a_small_pool_renews_its_leases_while_handlers_take_longer(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, connections int32) *service{"direct": newService, "pgbouncer": newPooledService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const connections, handlers = 4, 16
			s := open(t, connections)
			store := s.store()
			var runs, atWork, most atomic.Int32
			proceed := make(chan struct{})
			s.work(store, "q", queue.Config{Concurrency: handlers, Tuning: postbox.Tuning{Lease: time.Second}}, func(msg *message.Message) error {
				runs.Add(1)
				for n := atWork.Add(1); ; {
					if before := most.Load(); n <= before || most.CompareAndSwap(before, n) {
						break
					}
				}
				defer atWork.Add(-1)
				if err := s.effect(msg.Context(), msg.UUID); err != nil {
					return err
				}
				select {
				case <-proceed:
					return nil
				case <-msg.Context().Done():
					return msg.Context().Err()
				}
			})
			ids := s.put(store, "q", handlers, func(i int) string { return fmt.Sprint(i) })
			s.eventually(func() bool { return atWork.Load() == connections-1 }, "all connections but one are in handlers")
			until := func() int { return s.Count(t, "SELECT MAX(expires_at) FROM postbox_members") }
			for last, renewals := until(), 0; renewals < 6; renewals++ { // two leases and more
				s.eventually(func() bool { return until() > last }, "the leases are renewed")
				last = until()
			}
			close(proceed)
			s.eventually(func() bool { return s.pending() == 0 }, "the queue is empty")
			s.wrote(ids...)
			require.EqualValues(t, handlers, runs.Load(), "no handler has run in vain")
			require.EqualValues(t, connections-1, most.Load())
		})
	}
}

// broker keeps what is published to it.
type broker struct {
	mu  sync.Mutex
	ids []string
}

func (b *broker) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range messages {
		b.ids = append(b.ids, msg.UUID)
	}
	return nil
}

func (b *broker) Close() error { return nil }

func (b *broker) distinct() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(b.ids)))
}
