package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
)

func TestGroupCommit_G1_a_failed_function_leaves_nothing_and_the_others_commit(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(t.Context(), 1, "fails", func(context.Context, *sql.Tx) error { return errBroker })
		b.enter(t.Context(), 2, "b", nil)
		b.enter(t.Context(), 3, "panics", func(context.Context, *sql.Tx) error { panic("oh") })
		b.enter(t.Context(), 4, "c", nil)
		b.enter(t.Context(), 5, "exits", func(context.Context, *sql.Tx) error { runtime.Goexit(); return nil })
		b.enter(t.Context(), 6, "d", nil)
	})
	require.Equal(t, "first a b c d", b.names())
	require.Equal(t, errBroker, b.errors["fails"], "an error comes back as it is")
	require.EqualError(t, b.errors["panics"], "it never returned: oh")
	require.EqualError(t, b.errors["exits"], "it never returned: <nil>")
	for _, name := range []string{"a", "b", "c", "d"} {
		require.NoError(t, b.errors[name])
	}
	require.Len(t, b.txs, 8, "each ran once")
	for _, tx := range b.txs[1:] {
		require.Same(t, b.txs[1], tx)
	}
}

func TestGroupCommit_goes_on_after_all_functions_of_a_group_failed(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	fails := func(context.Context, *sql.Tx) error { return errBroker }
	b.behind(fails, func() {
		b.enter(t.Context(), 0, "a", fails)
		b.enter(t.Context(), 1, "b", fails)
	})
	require.Empty(t, b.names())
	require.NoError(t, b.groups.InTx(t.Context(), b.writes("later", nil)))
	require.Equal(t, "later", b.names())
}

func TestGroupCommit_publishes_to_an_outbox_that_a_failed_function_registered(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	publisher := publisherFor(t, b.Database, nil)
	publishes := func(id string, err error) inTxFunc {
		return func(ctx context.Context, _ *sql.Tx) error {
			msg := newMessage(id, "")
			msg.SetContext(ctx)
			return errors.Join(publisher.Publish("topic", msg), err)
		}
	}
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "fails", publishes("1", errBroker))
		b.enter(t.Context(), 1, "a", publishes("2", nil))
	})
	require.NoError(t, b.groups.InTx(t.Context(), b.writes("later", publishes("3", nil))))
	require.Equal(t, []string{"2", "3"}, query(t, b.DB, `
SELECT CAST(message_id AS TEXT) FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool ORDER BY m.id`))
}

func TestGroupCommit_hooks_run_after_the_commit_and_only_then(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	var mu sync.Mutex
	seen := map[string]string{}
	hook := func(name string, err error) inTxFunc {
		return func(ctx context.Context, _ *sql.Tx) error {
			require.True(t, postbox.AfterCommit(ctx, func() {
				names := b.names()
				mu.Lock()
				defer mu.Unlock()
				seen[name] = names
			}))
			return err
		}
	}
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "a", hook("a", nil))
		b.enter(t.Context(), 1, "fails", hook("fails", errBroker))
		b.enter(t.Context(), 2, "b", hook("b", nil))
	})
	require.Equal(t, map[string]string{"a": "first a b", "b": "first a b"}, seen)
}

// An interrupted statement ends the whole transaction in SQLite: that must not be the others' fault.
func TestGroupCommit_an_interrupted_statement_fails_no_other_function(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(t.Context(), 1, "interrupted", func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO business SELECT i FROM n`)
			return err
		})
		b.enter(t.Context(), 2, "b", nil)
	})
	require.ErrorIs(t, b.errors["interrupted"], context.DeadlineExceeded)
	require.NoError(t, b.errors["a"])
	require.NoError(t, b.errors["b"])
	require.ElementsMatch(t, []string{"first", "a", "b"}, strings.Fields(b.names()))
	require.Len(t, b.txs, 5, "what was rolled back ran again")
}

func TestGroupCommit_a_function_that_ignores_a_rollback_does_not_run_again(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.Exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON business WHEN NEW.name = 'refused' BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(t.Context(), 1, "careless", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO business VALUES ('refused')")
			require.Error(t, err)
			_, err = tx.ExecContext(ctx, "INSERT INTO business VALUES ('outside of any transaction')")
			return err
		})
		b.enter(t.Context(), 2, "b", nil)
	})
	require.ErrorContains(t, b.errors["careless"], "no such savepoint")
	require.NoError(t, b.errors["a"])
	require.NoError(t, b.errors["b"])
	require.ElementsMatch(t, []string{"first", "outside of any transaction", "a", "b"}, query(t, b.DB, "SELECT name FROM business"))
}

func TestGroupCommit_a_refused_commit_fails_only_the_function_that_caused_it(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.Exec(t, "CREATE TABLE orders (customer TEXT REFERENCES customers (name) DEFERRABLE INITIALLY DEFERRED)")
	b.Exec(t, "CREATE TABLE customers (name TEXT PRIMARY KEY)")
	b.Exec(t, "PRAGMA foreign_keys = ON") // of the one connection
	orphan := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('nobody')")
		return err
	}
	require.ErrorContains(t, b.groups.InTx(t.Context(), b.writes("alone", orphan)), "FOREIGN KEY")
	require.Len(t, b.txs, 1, "who was alone is not tried again")
	b.behind(nil, func() {
		b.enter(t.Context(), 0, "a", nil)
		b.enter(t.Context(), 1, "orphan", orphan)
		b.enter(t.Context(), 2, "b", nil)
	})
	require.ErrorContains(t, b.errors["orphan"], "FOREIGN KEY")
	require.NoError(t, b.errors["a"])
	require.NoError(t, b.errors["b"])
	require.ElementsMatch(t, []string{"first", "a", "b"}, strings.Fields(b.names()))
}

// Those before it in the group are done if the transaction was committed, and must not run again.
func TestGroupCommit_G1_a_function_that_ends_the_transaction_gets_an_error(t *testing.T) {
	t.Parallel()
	execute := func(statement string) inTxFunc {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}
	}
	failing := func(end inTxFunc) inTxFunc {
		return func(ctx context.Context, tx *sql.Tx) error { return errors.Join(end(ctx, tx), errors.New("and fails")) }
	}
	for name, test := range map[string]struct {
		end       inTxFunc
		committed bool
	}{
		"Commit()":           {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, true},
		"Rollback()":         {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, false},
		"COMMIT":             {execute("COMMIT"), true},
		"COMMIT, and fails":  {failing(execute("COMMIT")), true},
		"COMMIT, then BEGIN": {execute("COMMIT; BEGIN"), true},
		"ROLLBACK":           {execute("ROLLBACK"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newGroupBench(t)
			b.behind(nil, func() {
				b.enter(t.Context(), 0, "a", nil)
				b.enter(t.Context(), 1, "ends", test.end)
				b.enter(t.Context(), 2, "b", nil)
			})
			require.NoError(t, b.errors["a"])
			require.Error(t, b.errors["ends"])
			require.Equal(t, name != "COMMIT, and fails", errors.Is(b.errors["ends"], postbox.ErrCommitUnknown), b.errors["ends"])
			require.NoError(t, b.errors["b"])
			want := []string{"first", "a", "b"}
			if test.committed {
				want = append(want, "ends")
			}
			require.ElementsMatch(t, want, strings.Fields(b.names()), "each has its effect once")
		})
	}
}

// SQLite releases no savepoint while a statement that writes is open, and the transaction goes on: the others must not be told that it was committed.
func TestGroupCommit_G1_an_open_statement_of_one_function_fails_no_other(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func() error{
		"returns": func() error { return nil },
		"fails":   func() error { return errBroker },
		"panics":  func() error { panic("oh") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newGroupBench(t)
			b.behind(nil, func() {
				b.enter(t.Context(), 0, "a", nil)
				b.enter(t.Context(), 1, "careless", func(ctx context.Context, tx *sql.Tx) error {
					rows, err := tx.QueryContext(ctx, "INSERT INTO business VALUES ('open') RETURNING name") //nolint:rowserrcheck,sqlclosecheck // the mistake
					require.NoError(t, err)
					require.True(t, rows.Next())
					return then()
				})
				b.enter(t.Context(), 2, "b", nil)
			})
			require.Error(t, b.errors["careless"])
			require.NotErrorIs(t, b.errors["careless"], postbox.ErrCommitUnknown, "the group was rolled back")
			require.NoError(t, b.errors["a"])
			require.NoError(t, b.errors["b"])
			require.ElementsMatch(t, []string{"first", "a", "b"}, query(t, b.DB, "SELECT name FROM business"))
		})
	}
}
