package pgxbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/pgxbox"
)

// A connection that database/sql opens for a caller whose time is over meanwhile goes back to the
// pool, where the rest of the service waits for it.
func TestInTx_keeps_no_connection_for_callers_who_have_gone(t *testing.T) {
	t.Parallel()
	config := newService(t, 1).pool.Config()
	free := make(chan struct{})
	config.AfterRelease = func(*pgx.Conn) bool { <-free; return true } // so that to open one takes time
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	db := pgxbox.Database(pool).DB
	defer func() { require.NoError(t, db.Close()); pool.Close() }()
	inTx := func(ctx context.Context, within func()) <-chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- pgxbox.InTx(ctx, pool, func(context.Context, pgx.Tx) error { within(); return nil })
		}()
		return ended
	}
	eventually := func(is func(sql.DBStats) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return is(db.Stats()) }, time.Minute, testdb.PollPause)
	}

	works, end := make(chan struct{}), make(chan struct{})
	first := inTx(t.Context(), func() { close(works); <-end })
	<-works
	ctx, cancel := context.WithCancel(t.Context())
	second := inTx(ctx, func() {})
	eventually(func(s sql.DBStats) bool { return s.WaitCount == 1 })
	close(end)
	require.NoError(t, <-first)
	eventually(func(s sql.DBStats) bool { return s.OpenConnections == 1 }) // it opens one for the second
	cancel()
	require.ErrorIs(t, <-second, context.Canceled)
	close(free)
	require.Eventually(t, func() bool { return db.Stats().OpenConnections == 0 && pool.Stat().AcquiredConns() == 0 }, 10*time.Second, testdb.PollPause)
	_, err = pool.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
}

// What a part has written is gone when it is rolled back, also if its time was over.
func TestInTx_a_savepoint_is_rolled_back_with_an_ended_context(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		errOver := errors.New("its time is over")
		require.NoError(t, pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error {
			part, cancel := context.WithCancel(ctx)
			err := pgx.BeginFunc(part, tx, func(inner pgx.Tx) error {
				_, err := inner.Exec(part, s.insert(), "part", 0, []string{})
				cancel()
				return errors.Join(err, errOver)
			})
			require.ErrorIs(t, err, errOver)
			return nil // the part may be missing
		}))
		s.wrote()
	})
}
