package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// misuse is something that a handler does to its own transaction.
type misuse struct {
	name string
	// do is the handler. It has written an effect before.
	do func(ctx context.Context, b *queueBench, tx *sql.Tx) error
	// says is part of each failure record.
	says string
	// commits: what the handler wrote before stays.
	commits bool
}

// ends says that there is no transaction any more, and no error tells of it: what a handler writes
// for other messages of its batch then is committed at once.
func (m misuse) ends(dialect postbox.Dialect) bool {
	return m.name == "ROLLBACK" || m.name == "swallowed deadlock" || m.name == "swallowed OR ROLLBACK" ||
		dialect == postbox.SQLite && m.name == "own time-out, error ignored"
}

// misuses returns those that are possible on the database.
func misuses(dialect postbox.Dialect) []misuse {
	all := []misuse{
		{name: "own time-out", do: ownTimeout, says: "deadline exceeded"},
		{name: "own time-out, error ignored", do: func(ctx context.Context, b *queueBench, tx *sql.Tx) error {
			_ = ownTimeout(ctx, b, tx)
			return nil
		}, says: inboxstore.ErrTransactionLost.Error()},
		{name: "ROLLBACK", do: execute("ROLLBACK"), says: "ended before the handler"},
		{name: "Rollback()", do: func(_ context.Context, _ *queueBench, tx *sql.Tx) error { return tx.Rollback() }, says: "ended before the handler"},
		{name: "COMMIT", do: execute("COMMIT"), says: "ended before the handler", commits: true},
		{name: "Commit()", do: func(_ context.Context, _ *queueBench, tx *sql.Tx) error { return tx.Commit() }, says: "ended before the handler", commits: true},
	}
	switch dialect {
	case postbox.PostgreSQL:
		all = append(all,
			misuse{name: "swallowed error", do: swallow("SELECT no_such_function()"), says: "did not return that error"},
			misuse{name: "idle time-out", do: idle("SET LOCAL idle_in_transaction_session_timeout = 20"), says: inboxstore.ErrTransactionLost.Error()},
			misuse{name: "read-only", do: execute("SET TRANSACTION READ ONLY"), says: inboxstore.ErrTransactionLost.Error()},
			misuse{name: "temporary files", do: temporaryFiles, says: "temp_file_limit"},
			misuse{name: "terminated", do: execute("SELECT pg_terminate_backend(pg_backend_pid())"), says: inboxstore.ErrTransactionLost.Error()},
			misuse{name: "another server", do: fails(&pq.Error{Code: "57P01"}), says: "pq:"},
			misuse{name: "role", do: execute("SET LOCAL ROLE pg_monitor"), says: inboxstore.ErrTransactionLost.Error()},
		)
	case postbox.MySQL:
		all = append(all,
			misuse{name: "swallowed deadlock", do: swallowDeadlock, says: "ended before the handler"},
			misuse{name: "idle time-out", do: idle("SET SESSION idle_transaction_timeout = 1"), says: inboxstore.ErrTransactionLost.Error()},
			misuse{name: "memory of a session", do: sessionMemory, says: "max-session-mem-used"},
			misuse{name: "killed", do: execute("KILL CONNECTION_ID()"), says: inboxstore.ErrTransactionLost.Error()},
			misuse{name: "another server", do: fails(&mysql.MySQLError{Number: 1053, Message: "shutdown"}), says: "shutdown"},
			misuse{name: "CREATE TABLE", do: execute("CREATE TABLE IF NOT EXISTS of_handler (id INTEGER)"), says: "ended before the handler", commits: true},
		)
	case postbox.SQLite: // it has no server
		all = append(all, misuse{name: "swallowed OR ROLLBACK", do: swallow("INSERT OR ROLLBACK INTO effects VALUES (NULL, 0, '')"), says: "ended before the handler"})
	}
	for i, m := range all { // pgx and the servers word a time-out in their own ways
		if m.name == "own time-out" {
			all[i].says = ""
		}
	}
	return all
}

// ownTimeout gives a statement less time than it needs, until that ends the transaction: the time
// may be over before the statement has begun, and SQLite loses such an interrupt.
func ownTimeout(ctx context.Context, b *queueBench, tx *sql.Tx) error {
	effects := func() (n int, err error) {
		err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM effects WHERE id LIKE 'own time-out%'").Scan(&n)
		return n, err
	}
	before, err := effects()
	for range 1000 {
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, timeout := tx.ExecContext(short, inboxtest.Slow(b.Dialect))
		cancel()
		if left, err := effects(); timeout != nil && (err != nil || left < before) {
			return timeout
		}
	}
	return postbox.Permanent(errors.New("the statement had time enough"))
}

func execute(statement string) func(context.Context, *queueBench, *sql.Tx) error {
	return func(ctx context.Context, _ *queueBench, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
}

func fails(err error) func(context.Context, *queueBench, *sql.Tx) error {
	return func(context.Context, *queueBench, *sql.Tx) error { return err }
}

// temporaryFiles sorts more than the session may put into files.
func temporaryFiles(ctx context.Context, _ *queueBench, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "SET LOCAL work_mem = '64kB'"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "SET LOCAL temp_file_limit = '64kB'"); err != nil {
		return err
	}
	var rows int
	return tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT n FROM generate_series(1, 100000) n ORDER BY n DESC OFFSET 1) sorted").Scan(&rows)
}

// sessionMemory aggregates more than the session may hold in memory, which is the error of a server
// that is read-only.
func sessionMemory(ctx context.Context, _ *queueBench, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, "SET SESSION max_session_mem_used = 8192"); err != nil {
		return err
	}
	var rows int
	err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT seq FROM seq_1_to_10000 GROUP BY seq ORDER BY seq DESC) grouped").Scan(&rows)
	_, resetErr := tx.ExecContext(ctx, "SET SESSION max_session_mem_used = DEFAULT")
	return errors.Join(err, resetErr)
}

func swallow(statement string) func(context.Context, *queueBench, *sql.Tx) error {
	return func(ctx context.Context, _ *queueBench, tx *sql.Tx) error {
		_, _ = tx.ExecContext(ctx, statement)
		return nil
	}
}

// swallowDeadlock lets the server choose this transaction as the victim of a deadlock, since the
// other one has changed more.
func swallowDeadlock(ctx context.Context, b *queueBench, tx *sql.Tx) error {
	other, err := b.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = other.Rollback() }()
	const insert = "INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (?, 0)"
	own := postbox.NewMessageID()
	_, err = tx.ExecContext(ctx, insert, own)
	for i := 0; err == nil && i < 50; i++ {
		_, err = other.ExecContext(ctx, insert, fmt.Sprint(own, i))
	}
	if err != nil {
		return err
	}
	waits := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(ctx, "UPDATE postbox_claims SET claimed_at = 1 WHERE claim_key = ?", own)
		waits <- err
	}()
	if _, err := tx.ExecContext(ctx, "UPDATE postbox_claims SET claimed_at = 1 WHERE claim_key = ?", fmt.Sprint(own, 0)); err == nil {
		return errors.New("there was no deadlock")
	}
	return <-waits
}

// idle waits until the server has ended the connection, which the driver does not know then.
func idle(setting string) func(context.Context, *queueBench, *sql.Tx) error {
	return func(ctx context.Context, b *queueBench, tx *sql.Tx) error {
		self := map[postbox.Dialect]string{postbox.PostgreSQL: "SELECT pg_backend_pid()", postbox.MySQL: "SELECT CONNECTION_ID()"}[b.Dialect]
		there := map[postbox.Dialect]string{
			postbox.PostgreSQL: "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = ?",
			postbox.MySQL:      "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?",
		}[b.Dialect]
		var id int64
		if err := tx.QueryRowContext(ctx, self).Scan(&id); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, setting); err != nil {
			return err
		}
		for deadline := time.Now().Add(inboxtest.Patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
			var left int
			if err := b.DB.QueryRowContext(ctx, b.Bind(there), id).Scan(&left); err != nil || left == 0 {
				return err
			}
		}
		return postbox.Permanent(errors.New("the connection does not end"))
	}
}

// handler misuses its transaction where the message is called so, and writes an effect in any case.
func (b *queueBench) misusing(all []misuse) func(ctx context.Context, msg *message.Message) error {
	return func(ctx context.Context, msg *message.Message) error {
		if err := b.Effect(ctx, msg); err != nil {
			return err
		}
		for _, m := range all {
			if m.name == msg.UUID {
				tx, _ := postbox.TxFromContext(ctx)
				return m.do(ctx, b, tx)
			}
		}
		return nil
	}
}

// requireBlamed checks that each misuse was an attempt of its message, three times, and that the
// neighbours had their effect once.
func (b *queueBench) requireBlamed(all []misuse, neighbours []string) {
	b.T.Helper()
	var names []string
	for _, m := range all {
		names = append(names, m.name)
		errs := b.List(`SELECT f.error FROM postbox_failures f JOIN postbox_dead_letters d ON d.subject = f.subject
			WHERE d.message_id = ? ORDER BY f.id`, []byte(m.name))
		require.Len(b.T, errs, 3, "%s: %v", m.name, errs)
		for _, text := range errs {
			require.Contains(b.T, text, m.says, m.name)
		}
		left := 0
		if m.commits {
			left = 3
		}
		require.Equal(b.T, left, inboxtest.Count(b.Effects(), m.name), m.name)
	}
	require.ElementsMatch(b.T, names, b.Dead())
	for _, id := range neighbours {
		require.Equal(b.T, 1, inboxtest.Count(b.Effects(), id), id)
	}
	require.Zero(b.T, inboxtest.Count(b.Effects(), "slow"))
}

// Whatever a handler does to its own transaction is an attempt of its message, and holds up no
// other.
func TestQueue_G7_a_handler_that_loses_its_transaction_has_failed(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		name   string
		config func(*queue.Config)
		fits   func(misuse) bool
	}{
		{"single", inboxtest.Transactional, func(misuse) bool { return true }},
		// A handler that commits commits what others wrote before it in the same transaction:
		// nothing can undo that.
		{"micro-batch", func(c *queue.Config) { c.MicroBatch = 4 }, func(m misuse) bool { return !m.commits }},
	} {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				all := slices.DeleteFunc(misuses(database.Dialect), func(m misuse) bool { return !mode.fits(m) })
				var neighbours []string
				for i, m := range all {
					neighbours = append(neighbours, fmt.Sprintf("before %d", i), fmt.Sprintf("behind %d", i))
					b.Put(neighbours[2*i], m.name, neighbours[2*i+1])
				}
				handle := b.misusing(all)
				b.Start(inboxtest.Quick(func(c *queue.Config) {
					mode.config(c)
					c.Classify = postbox.ClassifyNetwork // what the handler did must not look like an outage
				}), func(msg *message.Message) error { return handle(msg.Context(), msg) })
				b.Drained()
				b.requireBlamed(all, neighbours)
			})
		})
	}
}

// The culprits of a batch are found by halves, and the others are done.
func TestBatch_G7_a_handler_that_loses_its_transaction_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		var all []misuse
		for _, m := range misuses(database.Dialect) {
			if !m.commits && !m.ends(database.Dialect) {
				all = append(all, m)
				b.Put(m.name)
			}
		}
		neighbours := inboxtest.Numbers(20)
		b.Put(neighbours...)
		handle := b.misusing(all)
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional = true }),
			func(ctx context.Context, messages []*message.Message) error {
				for _, msg := range messages {
					if err := handle(ctx, msg); err != nil {
						return err
					}
				}
				return nil
			})
		b.Drained()
		b.requireBlamed(all, neighbours)
	})
}

// In an inbox the claim is in the transaction: with it goes what the handler wrote.
func TestStore_G7_a_handler_that_loses_its_transaction_has_failed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for _, m := range misuses(database.Dialect) {
			if m.name == "role" || m.name == "read-only" {
				continue // nothing that comes after it needs a right, or writes
			}
			id := inboxstore.Key{Consumer: "c", MessageID: m.name}
			failures, fresh := 0, true
			for range 5 { // a connection that was lost, nobody knows why, is forgiven once
				var err error
				fresh, err = b.Store.Once(t.Context(), id, func(ctx context.Context) error {
					msg := message.NewMessage(m.name, nil)
					if err := b.Effect(ctx, msg); err != nil {
						return err
					}
					tx, _ := postbox.TxFromContext(ctx)
					return m.do(ctx, b, tx)
				})
				if err == nil {
					break
				}
				var failure *inboxstore.HandlerError
				if errors.As(err, &failure) {
					failures++
				}
			}
			require.False(t, fresh, m.name)
			if m.commits {
				require.Equal(t, 1, failures, m.name) // and then it is a duplicate
				require.Equal(t, 1, inboxtest.Count(b.Effects(), m.name), m.name)
				continue
			}
			require.GreaterOrEqual(t, failures, 4, m.name)
			require.Zero(t, inboxtest.Count(b.Effects(), m.name), m.name)
		}
	})
}

// A server that has restarted since, or is another one, is an outage, whatever the handler says.
func TestQueue_G7_a_database_that_was_replaced_or_restarted_is_an_outage(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		var runs atomic.Int32
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error {
			if err := b.Effect(msg.Context(), msg); err != nil || runs.Add(1) > 5 {
				return err
			}
			inbox.CoreOf(b.Store).MeetAnotherServer()
			tx, _ := postbox.TxFromContext(msg.Context())
			return ownTimeout(msg.Context(), b, tx)
		})
		b.Drained()
		require.Equal(t, []string{"1"}, b.Effects())
		require.Empty(t, b.Failures())
		require.EqualValues(t, 6, runs.Load())
	})
}
