package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// settling is a handler that hands its messages to the test and returns what the test says.
type settling struct {
	got      chan []*spool.Message
	outcomes chan []spool.Outcome
}

func newSettling() *settling {
	return &settling{got: make(chan []*spool.Message), outcomes: make(chan []spool.Outcome)}
}

func (s *settling) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	for i := range outcomes {
		outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
	}
	select {
	case s.got <- batch:
	case <-ctx.Done():
		return outcomes
	}
	select {
	case outcomes = <-s.outcomes:
	case <-ctx.Done():
	}
	return outcomes
}

func (s *settling) Excluded() []string { return nil }

func (s *settling) all(batch []*spool.Message, verdict spool.Verdict) {
	outcomes := make([]spool.Outcome, len(batch))
	for i := range outcomes {
		outcomes[i] = spool.Outcome{Verdict: verdict}
	}
	s.outcomes <- outcomes
}

// settle does as a handler with an effect of its own.
func (b *bench) settle(db *sql.DB, batch []*spool.Message) error {
	b.T.Helper()
	return spool.InTx(b.T.Context(), db, b.Statements, func(tx *sql.Tx) error {
		for _, m := range batch {
			if _, err := tx.ExecContext(b.T.Context(), b.Database.Bind("INSERT INTO effects (message_id) VALUES (?)"), m.MessageID); err != nil {
				return err
			}
		}
		return spool.Settle(b.T.Context(), tx, spool.Directly, batch)
	})
}

func TestSettle_G4_settles_all_messages_of_a_batch_or_none(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, history := range []time.Duration{0, time.Hour} {
			t.Run(history.String(), func(t *testing.T) {
				b := newBench(t, database)
				b.effects()
				defer database.Exec(t, "DROP TABLE effects")
				b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
				handler := newSettling()
				db := database.Open(t)
				c := config(t.Name())
				c.History, c.PageSize = history, 3*lanes
				b.start(database.DB, handler, c)
				batch := <-handler.got
				require.Len(t, batch, 3)

				err := spool.InTx(t.Context(), db, b.Statements, func(tx *sql.Tx) error {
					if err := spool.Settle(t.Context(), tx, spool.Directly, batch); err != nil {
						return err
					}
					return errTest
				})
				require.ErrorIs(t, err, errTest)
				require.Equal(t, 3, b.Pending(), "what is rolled back did not happen")
				require.Zero(t, b.history())

				gone := *batch[1]
				gone.Ref.ID += 1000
				require.ErrorIs(t, b.settle(db, []*spool.Message{batch[0], &gone}), spool.ErrLost, "all of them, or none")
				require.Equal(t, 3, b.Pending())
				require.Zero(t, b.effect(""))
				require.Zero(t, b.history())

				require.NoError(t, b.settle(db, batch))
				require.ErrorIs(t, b.settle(db, batch), spool.ErrLost, "once")
				b.effectsOnce(3)
				require.Zero(t, b.Pending())
				if history > 0 {
					require.Equal(t, 3, b.history())
				}
				handler.all(batch, spool.Settled)
				b.Append(database.DB, draft("next", "key"))
				next := <-handler.got
				require.Equal(t, "next", next[0].MessageID, "its key goes on")
				require.NoError(t, b.settle(db, next))
				handler.all(next, spool.Settled)
				database.Exec(t, "DELETE FROM postbox_history")
			})
		}
		var none *sql.Tx
		require.NoError(t, spool.Settle(t.Context(), none, spool.Directly, nil))
	})
}

// The lease ends while a handler is at work, another process handles the message, and then the
// first one is through. What it wrote is rolled back. The other order, that it settles first, is
// the second process's to notice. Also covers F15.
func TestSettle_F10_a_process_that_lost_the_lease_leaves_no_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.effects()
		b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
		slow, heir := newSettling(), newSettling()
		first := b.spawn("slow", func(*process) drain.Handler { return slow }, single)
		late := <-slow.got
		first.expire()
		second := b.spawn("heir", func(*process) drain.Handler { return heir }, single)
		again := <-heir.got
		require.Equal(t, late[0].MessageID, again[0].MessageID)

		require.ErrorIs(t, b.settle(first.db, late), spool.ErrLost)
		require.Zero(t, b.effect(""), "it is rolled back")
		slow.all(late, spool.Done) // nor without a transaction
		require.NoError(t, b.settle(second.db, again))
		heir.all(again, spool.Settled)
		next := <-heir.got
		require.Equal(t, "00001", next[0].MessageID)
		require.Equal(t, 2, b.Pending())
		b.effectsOnce(1)
		require.NoError(t, b.settle(second.db, next))
		heir.all(next, spool.Settled)
		first.stop(t)
	})
}

// The first process has removed the message and not yet committed when it loses the lease. The
// effect is its own, and whoever gets the message meanwhile has none.
func TestSettle_F10_a_lease_lost_between_settle_and_commit_leaves_one_effect(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect != postbox.PostgreSQL {
			return // SQLite has one writer, MySQL locks the lane until the commit: nobody takes it meanwhile
		}
		b := newBench(t, database)
		b.effects()
		b.Append(database.DB, draft("one", "key"))
		slow := newSettling()
		first := b.spawn("slow", func(*process) drain.Handler { return slow }, nil)
		batch := <-slow.got
		tx, err := first.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: b.Statements.Isolation})
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), database.Bind("INSERT INTO effects (message_id) VALUES (?)"), "one")
		require.NoError(t, err)
		require.NoError(t, spool.Settle(t.Context(), tx, spool.Directly, batch))
		first.expire()
		database.Exec(t, "UPDATE postbox_lanes SET holder = NULL") // handed back: it is no suspect, whose start would be counted

		var entered atomic.Int32
		second := b.spawn("heir", func(p *process) drain.Handler {
			return &effector{p: p, do: func(context.Context, *spool.Message) error {
				entered.Add(1)
				return nil
			}}
		}, nil)
		b.Eventually(func() bool { return entered.Load() > 0 }, "the heir handles it too, and waits to settle it")
		require.NoError(t, tx.Commit())
		slow.all(batch, spool.Settled)
		b.Append(database.DB, draft("two", "key"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the heir goes on")
		b.effectsOnce(2)
		second.stop(t)
	})
}

// Whoever holds the lanes changes all the time, and nobody is told. Each message has its effect
// once, in the order of its key, and none is lost. Also covers G3, G6 and F10.
func TestSettle_G4_each_message_has_its_effect_once_while_leases_are_lost(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		identity := map[postbox.Dialect]string{
			postbox.SQLite:     "INTEGER PRIMARY KEY AUTOINCREMENT",
			postbox.PostgreSQL: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
			postbox.MySQL:      "BIGINT AUTO_INCREMENT PRIMARY KEY",
		}[database.Dialect]
		database.Exec(t, "CREATE TABLE effects (id "+identity+", message_id VARCHAR(40) NOT NULL)")
		const messages, keys = 100, 5
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i % keys) })...)
		for i := range 3 {
			b.spawn(fmt.Sprint(i), func(p *process) drain.Handler {
				return &effector{p: p, inTx: func(*spool.Message) error {
					switch rand.IntN(20) { //nolint:gosec // chance is enough
					case 0:
						return errTest
					case 1:
						panic("handler breaks down")
					}
					return nil
				}}
			}, func(c *drain.Config) {
				c.Lease, c.Renew, c.Retry.Attempts = config("").Lease, 20*time.Millisecond, -1
			})
		}
		spoolID := database.Count(t, "SELECT MAX(id) FROM postbox_spools")
		for b.Pending() > 0 {
			// As if the holder had been too slow: its lease ends, and whoever looks next takes the
			// lane.
			database.Exec(t, "UPDATE postbox_lanes SET holder = 'nobody', token = token + 1 WHERE spool = ? AND lane = ?",
				spoolID, rand.IntN(lanes)) //nolint:gosec // chance is enough
			before := b.Pending()
			b.Eventually(func() bool { return before == 0 || b.Pending() < before }, "it goes on")
		}
		b.effectsOnce(messages)
		require.Zero(t, b.Dead())
		rows, err := database.DB.QueryContext(t.Context(), "SELECT message_id FROM effects ORDER BY id")
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		ofKey := map[int][]string{}
		for rows.Next() {
			var id string
			var i int
			require.NoError(t, rows.Scan(&id))
			_, err := fmt.Sscanf(strings.TrimLeft(id, "0")+" ", "%d", &i)
			if id == "00000" {
				i, err = 0, nil
			}
			require.NoError(t, err)
			ofKey[i%keys] = append(ofKey[i%keys], id)
		}
		require.NoError(t, rows.Err())
		for key, ids := range ofKey {
			require.True(t, slices.IsSorted(ids), "key %d: %v", key, ids)
		}
	})
}
