package drain_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// lockRow locks the row of the message "locked", as a transaction of somebody else's, until unlock
// is called.
func (b *bench) lockRow() (unlock func()) {
	b.T.Helper()
	return b.lockRowOf("locked")
}

func (b *bench) lockRowOf(id string) (unlock func()) {
	b.T.Helper()
	var row int64
	query := "SELECT id FROM postbox_messages WHERE message_id = ?"
	require.NoError(b.T, b.Database.DB.QueryRowContext(b.T.Context(), b.Database.Bind(query), []byte(id)).Scan(&row))
	tx, err := b.Database.DB.BeginTx(b.T.Context(), nil)
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = tx.Rollback() })
	query = "SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE" // on MariaDB any other search locks each row that it meets
	require.NoError(b.T, tx.QueryRowContext(b.T.Context(), b.Database.Bind(query), row).Scan(&row))
	return func() { require.NoError(b.T, tx.Rollback()) }
}

// What a message whose row is locked has to go through. SQLite has no locks on rows: see
// heldMessages.
var lockedCases = []struct {
	name  string
	fail  error // at the first attempt
	start bool  // its start is to be counted
	tried int
	dead  int
	set   func(c *drain.Config)
}{
	{name: "done", tried: 1},
	{name: "done and kept", tried: 1, set: func(c *drain.Config) { c.History = time.Hour }},
	{name: "retry", fail: errTest, tried: 2},
	{name: "bury", fail: postbox.Permanent(errTest), tried: 1, dead: 1},
	{name: "start", start: true, tried: 1},
}

// Somebody has locked the row of one message. Its key waits, everything else goes on, and when the
// lock is gone the message is settled once and its key goes on in order. Also covers G4.
func TestDrainer_G3_a_locked_row_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	const others, behind = 200, 400 // more of the key than a drainer has in memory
	for _, c := range lockedCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				if c.start {
					b.start(database.DB, &recorder{}, config("before")).stop(t)
					database.Exec(t, "UPDATE postbox_lanes SET suspect = 1")
				}
				stored := []spool.Draft{draft("locked", "k")}
				for i := range behind {
					stored = append(stored, draft(fmt.Sprintf("behind %03d", i), "k"))
				}
				b.Append(database.DB, append(stored, drafts(others, func(i int) string { return fmt.Sprint(i) })...)...)
				unlock := b.lockRow()
				var failed atomic.Bool
				handler := &recorder{do: func(m *spool.Message) error {
					if m.MessageID == "locked" && c.fail != nil && !failed.Swap(true) {
						return c.fail
					}
					return nil
				}}
				settings := config("one")
				if c.set != nil {
					c.set(&settings)
				}
				log := b.startLogged(database.DB, handler, settings)
				b.Eventually(func() bool {
					return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE ordering_key <> 'k'") == 0
				}, "the others are done while the row is locked")
				b.Eventually(func() bool { return log.Said("Postbox waits for a lock") == 1 }, "it is said")
				b.Append(database.DB, draft("last", "k"), draft("another", "other"))
				b.Eventually(func() bool { return handler.tried("another") == 1 }, "the others still go on")
				require.Zero(t, handler.tried("last"), "its key waits")
				require.Zero(t, log.Said("Postbox continues with the key"))

				unlock()
				b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
				require.Equal(t, c.tried, handler.tried("locked"))
				require.Equal(t, c.dead, b.Dead())
				ids := slices.DeleteFunc(handler.ids(), func(id string) bool { return len(id) == len("00000") || id == "another" })
				require.Len(t, ids, behind+2-c.dead, "each once")
				if c.dead == 0 {
					require.Equal(t, "locked", ids[0])
				}
				require.Equal(t, "last", ids[len(ids)-1])
				require.True(t, slices.IsSorted(ids[1-c.dead:len(ids)-1]), "in order")
				require.Equal(t, 1, log.Said("Postbox waits for a lock"))
				b.Eventually(func() bool { return log.Said("Postbox continues with the key") == 1 }, "that is said too")
				require.Zero(t, log.Said("cannot reach"), "it is no outage")
			})
		})
	}
}

// Reads leave out the key of a message that is held, and go past what a transaction has committed
// late meanwhile. When the lock is gone, that is handled before what came after it. Also covers F4.
func TestDrainer_G3_handles_a_late_committer_of_a_key_whose_head_is_locked(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"done": false, "tried again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				b.Append(database.DB, draft("00000", "other")) // registers the spool
				late, err := database.DB.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				b.Append(late, draft("late", "k"))
				b.Append(database.DB, draft("locked", "k"))
				unlock := b.lockRow()
				var failed atomic.Bool
				handler := &recorder{do: func(m *spool.Message) error {
					if m.MessageID == "locked" && fails && !failed.Swap(true) {
						return errTest
					}
					return nil
				}}
				log := b.startLogged(database.DB, handler, config("one"))
				b.Eventually(func() bool { return log.Said("Postbox waits for a lock") == 1 }, "it is held")
				require.NoError(t, late.Commit())
				b.Append(database.DB, draft("then", "k"))
				for range 20 { // reads, of which each may go on from where the last one was
					b.Append(database.DB, drafts(10, func(i int) string { return fmt.Sprint(i) })...)
					b.Eventually(func() bool { return b.Pending() == 3 }, "the others go on")
				}
				unlock()
				b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
				ofKey := slices.DeleteFunc(handler.ids(), func(id string) bool { return len(id) == len("00000") })
				require.Less(t, slices.Index(ofKey, "late"), slices.Index(ofKey, "then"))
				require.Len(t, ofKey, 3)
			})
		})
	}
}

// A message that is held keeps its lane, so that nobody else handles it again. The other messages
// of the lane go on. Also covers G4.
func TestDrainer_G3_hands_back_a_lane_with_a_locked_row_later(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("locked", "k"))
		unlock := b.lockRow()
		handler := &recorder{}
		log := b.startLogged(database.DB, handler, config("one"))
		b.Eventually(func() bool { return log.Said("Postbox waits for a lock") == 1 }, "it is held")
		second := b.start(database.DB, handler, config("two"))
		b.Eventually(func() bool { return b.held("one") == lanes/2 && b.held("two") == lanes/2 }, "half of the lanes go")
		b.Append(database.DB, drafts(200, func(i int) string { return fmt.Sprint(i) })...)
		b.Eventually(func() bool { return b.Pending() == 1 }, "all others go on")
		second.stop(t)
		unlock()
		b.Eventually(func() bool { return b.Pending() == 0 }, "it is settled")
		require.Equal(t, 1, handler.tried("locked"))
	})
}

// A drainer that stops tries until its time is over. If the row is locked all the time, the message
// stays in the table, and the log says how many such messages there are. A message that was not
// handled is not waited for.
func TestDrainer_G12_stops_in_time_while_a_row_is_locked(t *testing.T) {
	t.Parallel()
	for _, c := range lockedCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				if c.start {
					b.start(database.DB, &recorder{}, config("before")).stop(t)
					database.Exec(t, "UPDATE postbox_lanes SET suspect = 1")
				}
				b.Append(database.DB, draft("locked", "k"), draft("free", "other"))
				unlock := b.lockRow()
				handler := &recorder{do: func(m *spool.Message) error {
					if m.MessageID == "locked" {
						return c.fail
					}
					return nil
				}}
				settings := config("one")
				settings.Close = time.Millisecond // so it tries for handBackTime, and the rest of the bound is for a busy machine
				r, log := b.runLogged(handler, settings)
				b.Eventually(func() bool { return b.Pending() == 1 && (c.start || handler.tried("locked") == 1) }, "the other one is done")
				began := time.Now()
				r.stop(t)
				require.Less(t, time.Since(began), config("").Close+time.Second)
				require.Equal(t, 1, b.Pending())
				require.Zero(t, b.held("one"), "its lanes are free")
				tried := handler.tried("locked")
				require.ElementsMatch(t, slices.Repeat([]any{1}, tried), unrecorded(log))

				unlock()
				b.start(database.DB, &recorder{}, config("two"))
				b.Eventually(func() bool { return b.Pending() == 0 }, "the next holder handles it")
				require.LessOrEqual(t, tried, 1)
			})
		})
	}
}
