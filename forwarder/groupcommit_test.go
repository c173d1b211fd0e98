package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// groupBench is a table that transactions in groups write to.
type groupBench struct {
	*testdb.Database
	t      *testing.T
	groups *forwarder.GroupCommit
	calls  sync.WaitGroup

	mu     sync.Mutex
	txs    []*sql.Tx        // that functions ran in, in the order in which they ran
	errors map[string]error // that calls returned
}

func newGroupBench(t *testing.T) *groupBench {
	t.Helper()
	b := &groupBench{Database: testdb.SQLite(t).Migrate(t), t: t, errors: map[string]error{}}
	b.Exec(t, "CREATE TABLE business (name TEXT NOT NULL)")
	groups, err := forwarder.NewGroupCommit(postbox.Database{DB: b.DB, Dialect: postbox.SQLite})
	require.NoError(t, err)
	b.groups = groups
	return b
}

type inTxFunc = func(ctx context.Context, tx *sql.Tx) error

// writes is a function that inserts a name, and then does what the test wants.
func (b *groupBench) writes(name string, then inTxFunc) inTxFunc {
	return func(ctx context.Context, tx *sql.Tx) error {
		b.mu.Lock()
		b.txs = append(b.txs, tx)
		b.mu.Unlock()
		if _, err := tx.ExecContext(ctx, "INSERT INTO business VALUES (?)", name); err != nil {
			return err
		}
		if then == nil {
			return nil
		}
		return then(ctx, tx)
	}
}

// enter calls InTx, and returns when it waits behind n others.
func (b *groupBench) enter(ctx context.Context, n int, name string, then inTxFunc) {
	b.t.Helper()
	b.calls.Go(func() {
		finished := false
		defer func() {
			reason := recover()
			b.mu.Lock()
			defer b.mu.Unlock()
			if !finished {
				b.errors[name] = fmt.Errorf("it never returned: %v", reason)
			}
		}()
		err := b.groups.InTx(ctx, b.writes(name, then))
		finished = true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errors[name] = err
	})
	require.Eventually(b.t, func() bool { return b.groups.Waiting() == n+1 }, patience, time.Millisecond)
}

// behind runs a first transaction, and others that wait before it ends, and waits for all.
func (b *groupBench) behind(first inTxFunc, others func()) {
	b.t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	b.calls.Go(func() {
		err := b.groups.InTx(b.t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			close(begun)
			<-end
			return b.writes("first", first)(ctx, tx)
		})
		b.mu.Lock()
		defer b.mu.Unlock()
		b.errors["first"] = err
	})
	<-begun
	others()
	close(end)
	b.calls.Wait()
}

// names are those that were committed, in their order.
func (b *groupBench) names() string {
	return strings.Join(query(b.t, b.DB, "SELECT name FROM business ORDER BY rowid"), " ")
}

func query(t *testing.T, db *sql.DB, text string) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		found = append(found, s)
	}
	require.NoError(t, rows.Err())
	return found
}

func TestGroupCommit_waiting_functions_share_a_transaction_in_their_order(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.behind(nil, func() {
		for i := range 120 {
			b.enter(t.Context(), i, fmt.Sprint(i), nil)
		}
	})
	var want []string
	for i := range 120 {
		want = append(want, fmt.Sprint(i))
		require.NoError(t, b.errors[fmt.Sprint(i)])
	}
	require.Equal(t, "first "+strings.Join(want, " "), b.names())
	require.NotSame(t, b.txs[0], b.txs[1], "whoever comes while somebody runs is in the next group")
	shared := b.txs[1]
	for i, tx := range b.txs[1:] {
		require.Equal(t, i < 100, tx == shared, "transaction %d: a group has 100 at most", i)
	}
	require.Same(t, b.txs[101], b.txs[120])
}

func TestGroupCommit_a_waiting_function_leaves_when_its_context_ends(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	canceled, cancel := context.WithCancel(t.Context())
	running, stop := context.WithCancel(t.Context())
	b.behind(func(context.Context, *sql.Tx) error {
		cancel()
		require.Eventually(t, func() bool { return b.groups.Waiting() == 2 }, patience, time.Millisecond, "it leaves the queue at once")
		return nil
	}, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(canceled, 1, "leaves", nil)
		b.enter(running, 2, "ends", func(context.Context, *sql.Tx) error { stop(); return nil })
	})
	require.ErrorIs(t, b.errors["leaves"], context.Canceled)
	require.EqualError(t, b.errors["ends"], "commit: context canceled")
	require.NoError(t, b.errors["a"])
	require.Equal(t, "first a", b.names())
	require.Len(t, b.txs, 3, "whoever left does not run")
}

func TestGroupCommit_a_context_that_ends_before_there_is_a_connection_is_an_error(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	taken, err := b.DB.Conn(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.groups.InTx(ctx, b.writes("ends", nil)) }()
	require.Eventually(t, func() bool { return b.DB.Stats().WaitCount == 1 }, patience, time.Millisecond)
	b.enter(t.Context(), 0, "a", nil)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, taken.Close())
	b.calls.Wait()
	require.NoError(t, b.errors["a"], "the next in the queue begins the group")
	require.Equal(t, "a", b.names())
}

func TestGroupCommit_within_a_transaction_joins_it(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	require.NoError(t, b.groups.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		require.ErrorIs(t, b.groups.InTx(ctx, b.writes("failed", func(context.Context, *sql.Tx) error { return errBroker })), errBroker)
		require.NoError(t, forwarder.InTx(ctx, b.DB, b.writes("a", nil)))
		return b.groups.InTx(ctx, func(ctx context.Context, inner *sql.Tx) error {
			require.Same(t, tx, inner)
			return b.writes("b", nil)(ctx, inner)
		})
	}))
	require.NoError(t, forwarder.InTx(t.Context(), b.DB, func(ctx context.Context, _ *sql.Tx) error {
		return b.groups.InTx(ctx, b.writes("c", nil))
	}))
	require.ErrorIs(t, b.groups.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
		require.NoError(t, b.groups.InTx(ctx, b.writes("rolled back with the outer one", nil)))
		return errBroker
	}), errBroker)
	require.Equal(t, "a b c", b.names())
}

func TestGroupCommit_a_closed_database_is_an_error_of_all_functions(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.behind(func(context.Context, *sql.Tx) error { return b.DB.Close() }, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(t.Context(), 1, "b", nil)
	})
	for _, name := range []string{"a", "b"} {
		require.ErrorContains(t, b.errors[name], "database is closed")
	}
}

func TestNewGroupCommit_refuses_databases_that_share_commits_by_themselves(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t).DB
	for dialect, want := range map[postbox.Dialect]string{
		postbox.PostgreSQL: "group commit: postgresql shares commits by itself: use forwarder.InTx",
		postbox.MySQL:      "group commit: mysql shares commits by itself: use forwarder.InTx",
		"":                 "group commit: dialect is missing: use postbox.PostgreSQL, postbox.MySQL or postbox.SQLite",
	} {
		_, err := forwarder.NewGroupCommit(postbox.Database{DB: db, Dialect: dialect})
		require.EqualError(t, err, want)
	}
	_, err := forwarder.NewGroupCommit(postbox.Database{Dialect: postbox.SQLite})
	require.EqualError(t, err, "group commit: the database is nil: set DB of the postbox.Database")
}

// Many at a time, some of which fail or are in a hurry: what returned nil is there, what returned an error is not.
func TestGroupCommit_G1_messages_exist_if_and_only_if_InTx_returned_nil(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	publisher := publisherFor(t, b.Database, nil)
	var mu sync.Mutex
	var want []string
	for producer := range 16 {
		b.calls.Go(func() {
			for i := range 40 {
				name := fmt.Sprintf("%d/%d", producer, i)
				ctx, cancel := context.WithCancel(t.Context())
				err := b.groups.InTx(ctx, b.writes(name, func(ctx context.Context, _ *sql.Tx) error {
					msg := newMessage(name, "")
					msg.SetContext(ctx)
					switch {
					case i%7 == 3:
						return errors.Join(publisher.Publish("topic", msg), errBroker)
					case i%11 == 5:
						go cancel() // somewhere in what follows
					}
					return publisher.Publish("topic", msg)
				}))
				cancel()
				if err == nil {
					mu.Lock()
					want = append(want, name)
					mu.Unlock()
				}
			}
		})
	}
	b.calls.Wait()
	require.ElementsMatch(t, want, query(t, b.DB, "SELECT name FROM business"))
	require.ElementsMatch(t, want, query(t, b.DB, "SELECT CAST(message_id AS TEXT) FROM postbox_messages"))
	require.Greater(t, len(want), 16*40/2)
}
