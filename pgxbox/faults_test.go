package pgxbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/pgxbox"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Contexts end at any moment of a transaction: while it begins, between two rows, in a batch, in a
// copy, while it commits. What InTx says is what has happened.
func TestInTx_G1_is_whole_or_nothing_whenever_its_context_ends(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		publisher := s.publisher()
		place := func(ctx context.Context, id string) error {
			return pgxbox.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
				rows, err := tx.Query(ctx, "SELECT generate_series(1, 1000)")
				if err != nil {
					return err
				}
				if _, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
					return err
				}
				if err := s.write(ctx, tx, id); err != nil {
					return err
				}
				return published(ctx, publisher, id)
			})
		}
		require.NoError(t, place(t.Context(), "warm"))
		began := time.Now()
		require.NoError(t, place(t.Context(), "timed"))
		takes := time.Since(began)

		var mu sync.Mutex
		placed, unknown := []string{"warm", "timed"}, []string(nil)
		var workers sync.WaitGroup
		for worker := range 4 {
			workers.Go(func() {
				for i := range 40 {
					id := fmt.Sprint(worker, "-", i)
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(8*takes)) //nolint:gosec // a fault
					err := place(ctx, id)
					cancel()
					mu.Lock()
					switch {
					case err == nil:
						placed = append(placed, id)
					case errors.Is(err, postbox.ErrCommitUnknown):
						unknown = append(unknown, id)
					}
					mu.Unlock()
				}
			})
		}
		workers.Wait()
		s.eventually(func() bool {
			return s.Count(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = ? AND state <> 'idle'", s.schema()) == 0
		}, "the server has ended what its clients have given up")
		for _, id := range unknown {
			if s.Count(t, "SELECT COUNT(*) FROM effects WHERE id = ?", id) > 0 {
				placed = append(placed, id)
			}
		}
		s.wrote(placed...)
		require.Equal(t, len(placed), s.pending())
		s.eventually(func() bool { return s.pool.Stat().AcquiredConns() == 0 }, "the pool has all connections back") // it closes those that are broken by and by
	})
}

// All sessions of the service are ended again and again, wherever its handlers are.
func TestQueue_G4_has_its_effects_once_while_its_sessions_are_killed(t *testing.T) { //nolint:paralleltest // see eachAlone
	eachAlone(t, func(t *testing.T, s *service) {
		const messages, kills = 60, 8
		store := s.store()
		ids := s.put(store, "q", messages, func(i int) string { return fmt.Sprint(i % 6) })
		retry := postbox.RetryProfile{Attempts: 100, Base: time.Millisecond, Cap: 5 * time.Millisecond}
		handled := make(chan struct{}, 1000*messages)
		s.work(store, "q", queue.Config{Concurrency: 6, Retry: retry, Tuning: postbox.Tuning{PollMax: 20 * time.Millisecond, Lease: 2 * time.Second}}, func(msg *message.Message) error {
			if err := s.effect(msg.Context(), msg.UUID); err != nil {
				return err
			}
			handled <- struct{}{}
			return nil
		})
		for range kills {
			for range messages / kills / 2 {
				<-handled
			}
			s.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ?", s.schema())
		}
		s.eventually(func() bool { return s.pending() == 0 }, "the queue is empty")
		s.wrote(ids...)
		require.Zero(t, s.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}
