package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// transactional handles each message in a transaction, as a queue of an inbox does: its effect and
// its end commit together.
type transactional struct {
	b  *bench
	do func(m *spool.Message) error
}

func (h transactional) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	m := batch[0]
	if err := h.do(m); err != nil {
		return []spool.Outcome{drain.OutcomeOf(err)}
	}
	err := spool.InTx(ctx, h.b.database.DB, h.b.statements, func(tx *sql.Tx) error {
		text := h.b.database.Bind("INSERT INTO effects (message_id) VALUES (?)")
		if _, err := tx.ExecContext(ctx, text, m.MessageID); err != nil {
			return err
		}
		return spool.Settle(ctx, tx, spool.Directly, batch)
	})
	if err == nil {
		return []spool.Outcome{{Verdict: spool.Settled}}
	}
	return []spool.Outcome{{Verdict: spool.Postpone, Err: err}}
}

func (h transactional) Excluded() []string { return nil }

// effects counts how often each message had its effect.
func (b *bench) effects() map[string]int {
	b.Helper()
	rows, err := b.database.DB.QueryContext(b.Context(), "SELECT message_id, COUNT(*) FROM effects GROUP BY message_id")
	require.NoError(b, err)
	defer func() { _ = rows.Close() }()
	effects := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		require.NoError(b, rows.Scan(&id, &n))
		effects[id] = n
	}
	require.NoError(b, rows.Err())
	return effects
}

// A message is in a handler when an operator buries it: the handler's transaction is rolled back.
// Also covers F22.
func TestBury_G4_rolls_back_the_transaction_of_a_running_handler(t *testing.T) {
	t.Parallel()
	t.Run("for the first time", func(t *testing.T) { t.Parallel(); buryWhileHandled(t, false) })
	t.Run("again", func(t *testing.T) { t.Parallel(); buryWhileHandled(t, true) })
}

func buryWhileHandled(t *testing.T, again bool) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		database.Exec(t, "CREATE TABLE effects (message_id VARCHAR(100) NOT NULL)")
		b.append(draft("one", "orders", "key"), draft("two", "orders", "key"))
		if again {
			b.exec("UPDATE postbox_messages SET state = 2, attempts = 1 WHERE id = (SELECT * FROM (SELECT MIN(id) FROM postbox_messages) m)")
			database.MoveWaiting(t)
		}
		entered, gate := make(chan struct{}), make(chan struct{})
		b.drainWith(database.DB, transactional{b, func(m *spool.Message) error {
			if m.MessageID == "one" {
				entered <- struct{}{}
				<-gate
			}
			return nil
		}}, func(c *drain.Config) { c.History = time.Hour })
		<-entered
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: b.message("one").ID}, "no")))
		close(gate)
		b.eventually(func() bool { return b.pending() == 0 }, "the key goes on")
		require.Equal(t, map[string]int{"two": 1}, b.effects())
		require.Equal(t, "one", b.only(admin.Filter{}).MessageID)
		account, err := b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, admin.Account{Written: 2, Done: 1, Dead: 1}, account)
	})
}

// Two operators and two drainers go for the same messages, over and over: they are run now, put
// off, buried and requeued, fail and succeed. Each thing that is done to a message is done by one
// of them, none is lost, and each has one effect. Also covers G9 and F22.
func TestAdmin_G4_operators_and_drainers_change_the_same_messages_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		database.Exec(t, "CREATE TABLE effects (message_id VARCHAR(100) NOT NULL)")
		const messages = 60
		for i := range messages {
			d := draft(strconv.Itoa(i), "orders", strconv.Itoa(i%7))
			d.Delay = time.Duration(i%3) * 5 * time.Millisecond
			b.append(d)
		}
		var healthy atomic.Bool
		h := transactional{b, func(*spool.Message) error {
			if !healthy.Load() && rand.IntN(10) > 0 { //nolint:gosec // a test
				return postbox.RetryAfter(errBroker, time.Duration(rand.IntN(10))*time.Millisecond) //nolint:gosec // a test
			}
			return nil
		}}
		b.drainTwice(h, func(c *drain.Config) { c.Head, c.History, c.Retry.Attempts = drain.HeadPark, time.Hour, 3 })

		var buried atomic.Int32
		var operators sync.WaitGroup
		errs := make([]error, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for i := range errs {
			operator := b.operator(database)
			operators.Go(func() {
				for ctx.Err() == nil && errs[i] == nil {
					errs[i] = b.meddle(operator, &buried)
				}
			})
		}
		operators.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.Positive(t, buried.Load())
		healthy.Store(true)
		b.eventually(func() bool {
			_, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
			require.NoError(t, err)
			for _, m := range b.messages(admin.Filter{Status: admin.Parked}) {
				if _, err := b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, time.Time{}); !errors.Is(err, admin.ErrNotFound) {
					require.NoError(t, err)
				}
			}
			return b.pending() == 0 && b.dead() == 0
		}, "all messages are handled")
		effects := b.effects()
		require.Len(t, effects, messages)
		for id, n := range effects {
			require.Equal(t, 1, n, id)
		}
		account, err := b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, admin.Account{Written: messages, Done: messages}, account)
	})
}

// meddle does something to each message that waits, and requeues what is dead.
func (b *bench) meddle(operator *admin.Admin, buried *atomic.Int32) error {
	waiting, _, err := operator.Messages(b.Context(), admin.Filter{Target: b.target})
	if err != nil {
		return err
	}
	for i, m := range waiting {
		switch i % 4 {
		case 0:
			_, err = operator.Reschedule(b.Context(), admin.Filter{Target: b.target, ID: m.ID}, time.Time{})
		case 1:
			_, err = operator.Reschedule(b.Context(), admin.Filter{Target: b.target, ID: m.ID}, time.Now().Add(10*time.Millisecond))
		case 2:
			if _, err = operator.Bury(b.Context(), admin.Filter{Target: b.target, ID: m.ID}, "meddling"); err == nil {
				buried.Add(1)
			}
		case 3:
			err = operator.Resume(b.Context(), admin.Filter{Target: b.target, Key: m.Key})
		}
		if err != nil && !errors.Is(err, admin.ErrNotFound) && !errors.Is(err, admin.ErrRefused) {
			return err
		}
	}
	_, err = operator.Requeue(b.Context(), admin.Filter{All: true}, admin.Again{})
	return err
}

// Of many operators that bury the same messages, while others run them now and the drainer settles
// them, one has each.
func TestBury_F22_exactly_one_wins(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages, operators = 20, 4
		for i := range messages {
			d := draft(strconv.Itoa(i), "orders", "")
			d.Delay = time.Duration(i%2) * 50 * time.Millisecond // the others are ready
			b.append(d)
		}
		waiting := b.messages(admin.Filter{})
		h, _ := b.drain(func(*spool.Message) error { return nil })
		var won [messages]atomic.Int32
		var group sync.WaitGroup
		outcomes := make(chan error, operators*messages)
		for range operators {
			operator := b.operator(database)
			group.Go(func() {
				for i, m := range waiting {
					_, err := operator.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "no")
					if err == nil {
						won[i].Add(1)
					}
					outcomes <- err
				}
			})
		}
		group.Go(func() {
			for i := range waiting {
				last := waiting[len(waiting)-1-i]
				_, _ = b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: last.ID}, time.Time{})
			}
		})
		group.Wait()
		close(outcomes)
		for err := range outcomes {
			if err != nil {
				require.ErrorIs(t, err, admin.ErrNotFound)
			}
		}
		b.eventually(func() bool { return b.pending() == 0 }, "all are through")
		dead := map[string]int{}
		for _, letter := range b.list(admin.Filter{}) {
			dead[letter.MessageID]++
		}
		for i, m := range waiting {
			require.LessOrEqual(t, won[i].Load(), int32(1))
			require.EqualValues(t, won[i].Load(), dead[m.MessageID])
			require.Positive(t, dead[m.MessageID]+h.counts()[m.MessageID], "nothing is lost")
		}
	})
}

// A letter that was made by an operator is requeued by another one at once, many times: there is
// always one of the two.
func TestBury_F22_against_requeue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("one", "orders", "key"))
		var both sync.WaitGroup
		var buryErr, requeueErr error
		both.Go(func() {
			for n := 0; n < 20 && buryErr == nil; {
				var list []admin.Message
				list, _, buryErr = b.admin.Messages(t.Context(), admin.Filter{Target: b.target})
				for _, m := range list {
					if _, buryErr = b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "no"); buryErr != nil {
						return
					}
					n++
				}
			}
		})
		both.Go(func() {
			for n := 0; n < 20 && requeueErr == nil; {
				var requeued int
				requeued, requeueErr = b.operator(database).Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
				n += requeued
			}
		})
		both.Wait()
		require.NoError(t, buryErr)
		require.NoError(t, requeueErr)
		require.Equal(t, 1, b.pending())
		require.Zero(t, b.dead())
	})
}

// A message fails for the first time while an operator waits for its row: on PostgreSQL it moves to
// another table.
func TestRunNow_F22_finds_a_message_that_moves_to_another_table_meanwhile(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	b.append(draft("one", "orders", "key"))
	id := b.message("one").ID
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "UPDATE postbox_messages SET state = 2")
	require.NoError(t, err)
	var mover string
	require.NoError(t, tx.QueryRowContext(t.Context(), `
WITH m AS (DELETE FROM ONLY postbox_messages RETURNING *),
w AS (INSERT INTO postbox_waiting SELECT * FROM m)
SELECT pg_current_xact_id()::text FROM m`).Scan(&mover))

	ran := make(chan error, 1)
	go func() {
		ran <- errorOf(b.operator(database).Reschedule(t.Context(), admin.Filter{Target: b.target, ID: id}, time.Time{}))
	}()
	b.eventually(func() bool {
		return database.Count(t, "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND transactionid::text = ?", mover) == 1
	}, "the operator waits for the row")
	require.NoError(t, tx.Commit())
	require.NoError(t, <-ran)
}
