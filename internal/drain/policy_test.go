package drain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// choosy refuses one message as long as it is told to.
type choosy struct {
	recorder

	healthy atomic.Bool
}

func newChoosy(id string, err error) *choosy {
	c := &choosy{}
	c.do = func(m *spool.Message) error {
		if m.MessageID == id && !c.healthy.Load() {
			return err
		}
		return nil
	}
	return c
}

// parked counts messages that wait for an operator.
func (b *bench) parked() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND available_at >= ?", int64(dialect.ParkedFrom))
}

// resume makes parked messages due again, with all their attempts, as an operator does.
func (b *bench) resume() {
	b.T.Helper()
	b.Database.Exec(b.T, "UPDATE postbox_messages SET available_at = 0, attempts = 0, starts = 0 WHERE available_at >= ?", int64(dialect.ParkedFrom))
}

// Also covers feature N8.
func TestDrainer_G3_a_skipped_head_is_dead_and_its_key_goes_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newChoosy("00001", errTest)
		b.Append(database.DB, drafts(5, func(int) string { return "key" })...)
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Equal(t, []string{"00000", "00002", "00003", "00004"}, handler.ids())
		require.Equal(t, config("").Retry.Attempts, handler.tried("00001"))
		require.Equal(t, 1, b.Dead())
	})
}

// Also covers feature N8.
func TestDrainer_G3_a_blocked_head_is_tried_for_ever_and_its_key_waits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newChoosy("00000", errTest)
		c := config("one")
		c.Retry.Attempts = -1
		b.Append(database.DB, drafts(10, func(i int) string { return []string{"key", "other"}[i%2] })...)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return handler.tried("00000") > 2*config("").Retry.Attempts }, "it is tried beyond its attempts")
		b.Eventually(func() bool { return len(handler.ids()) == 5 }, "the other key flows")
		require.Zero(t, b.Dead())
		require.Zero(t, handler.tried("00002"))
		handler.healthy.Store(true)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.True(t, slices.IsSorted(handler.ids()[5:]))
	})
}

// Also covers feature N8.
func TestDrainer_G3_a_blocked_head_dies_of_a_permanent_error(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newChoosy("00000", postbox.Permanent(errTest))
		c := config("one")
		c.Retry.Attempts = -1
		b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Equal(t, 1, b.Dead())
		require.Equal(t, []string{"00001", "00002"}, handler.ids())
	})
}

// Also covers feature N8.
func TestDrainer_G3_a_parked_head_and_its_key_wait_for_an_operator(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"last attempt": errTest, "permanent": postbox.Permanent(errTest)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				handler := newChoosy("00000", err)
				c := config("one")
				c.Head = drain.HeadPark
				b.Append(database.DB, drafts(10, func(i int) string { return []string{"key", "other"}[i%2] })...)
				log := b.startLogged(database.DB, handler, c)
				b.Eventually(func() bool { return b.parked() == 1 && len(handler.ids()) == 5 }, "it is parked, the other key flows")
				const parked = "Postbox parked a message"
				b.Eventually(func() bool { return log.Said(parked) == 1 }, "an operator can find the message in the log")
				tries := handler.tried("00000")
				require.Equal(t, tries, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
				b.Append(database.DB, draft("more", "other"))
				b.Eventually(func() bool { return b.Pending() == 5 }, "the other key flows on")
				require.Equal(t, tries, handler.tried("00000"), "it is not tried again")
				require.Zero(t, handler.tried("00002"), "its key waits")
				require.Zero(t, b.Dead())

				b.resume() // in vain: it is parked again
				b.Eventually(func() bool { return handler.tried("00000") == 2*tries && b.parked() == 1 }, "it has all its attempts again")
				b.Eventually(func() bool { return log.Said(parked) == 2 }, "once each time")
				handler.healthy.Store(true)
				b.resume()
				b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
				require.True(t, slices.IsSorted(handler.ids()[6:]))
				require.Zero(t, b.Dead())
			})
		})
	}
}

// In one batch with messages of its key behind it, a message that cannot be decoded holds these
// back too. Also covers feature N8.
func TestDrainer_F12_parks_a_broken_row_with_its_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{}
		c := config("one")
		c.Head = drain.HeadPark
		b.Append(database.DB, drafts(6, func(i int) string { return []string{"key", "other"}[i%2] })...)
		database.Exec(t, "UPDATE postbox_messages SET metadata = ? WHERE message_id = ?", []byte("no json"), []byte("00000"))
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.parked() == 1 && b.Pending() == 3 }, "it is parked, the other key flows")
		require.Equal(t, []string{"00001", "00003", "00005"}, handler.ids())
		database.Exec(t, "UPDATE postbox_messages SET metadata = ? WHERE message_id = ?", []byte("{}"), []byte("00000"))
		b.resume()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Equal(t, []string{"00000", "00002", "00004"}, handler.ids()[3:])
	})
}

// Messages without an order need not wait for one that fails, nor for one that is parked, although
// they have a key. Also covers feature N8.
func TestDrainer_unordered_messages_of_a_key_pass_a_waiting_one(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newChoosy("00000", errTest)
		c := config("one")
		c.Head, c.Unordered, c.Retry.Attempts = drain.HeadPark, true, 1
		b.Append(database.DB, drafts(200, func(int) string { return "key" })...)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.parked() == 1 && b.Pending() == 1 }, "the others pass")
		require.Len(t, handler.ids(), 199)
	})
}

func TestDrainer_unordered_messages_of_a_key_run_side_by_side(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newStanding()
		b.Append(database.DB, drafts(4, func(int) string { return "key" })...)
		b.spawn("one", handler.of, func(c *drain.Config) {
			single(c)
			c.Unordered = true
		})
		for range 4 {
			signal(t, handler.entered, "all run")
		}
	})
}

// The attempts are the message's, however many processes try it.
// Also covers feature N6.
func TestDrainer_F14_attempts_do_not_multiply_with_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages, processes = 12, 4
		handler := &recorder{do: func(*spool.Message) error { return errTest }}
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
		for i := range processes {
			b.start(database.Open(t), handler, config(fmt.Sprint(i)))
		}
		b.Eventually(func() bool { return b.Dead() == messages && b.Pending() == 0 }, "all are dead")
		for i := range messages {
			require.Equal(t, config("").Retry.Attempts, handler.tried(fmt.Sprintf("%05d", i)))
		}
		require.Equal(t, messages*config("").Retry.Attempts, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

// told is what a hook heard of a death.
type told struct {
	id       string
	attempts int
	cause    error
}

func TestDrainer_buried_hook_runs_in_the_transaction_that_buries(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.effects()
		deaths, after := make(chan told, 100), make(chan int, 100)
		c := config("one")
		var refuse atomic.Bool
		refuse.Store(true)
		c.Buried = func(ctx context.Context, m *spool.Message, attempts int, cause error) error {
			tx, ok := postbox.TxFromContext(ctx)
			if !ok {
				return errors.New("no transaction")
			}
			if _, err := tx.ExecContext(ctx, database.Bind("INSERT INTO effects (message_id) VALUES (?)"), m.MessageID); err != nil {
				return err
			}
			if !postbox.AfterCommit(ctx, func() { after <- b.Dead() }) {
				return errors.New("nobody collects hooks")
			}
			if refuse.Swap(false) {
				return errTest // what it has written is rolled back with the death, and both are tried again
			}
			deaths <- told{m.MessageID, attempts, cause}
			return nil
		}
		c.PollMax = 5 * time.Millisecond
		b.Append(database.DB, draft("one", "key"), draft("two", "key"))
		b.start(database.DB, newChoosy("one", errTest), c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		require.Equal(t, told{"one", 3, errTest}, <-deaths)
		require.Equal(t, 1, <-after, "the death is committed by then")
		require.Empty(t, after, "hooks of what was rolled back do not run")
		b.effectsOnce(1)
		require.Equal(t, 1, b.Dead())
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestDrainer_G10_hook_history_and_large_payload_need_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1)
		b := newBench(t, database)
		b.effects()
		c := config("one")
		c.History = time.Hour
		told := make(chan int, 100)
		c.Buried = func(ctx context.Context, m *spool.Message, _ int, _ error) error {
			tx, _ := postbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, database.Bind("INSERT INTO effects (message_id) VALUES (?)"), m.MessageID)
			postbox.AfterCommit(ctx, func() { told <- b.Dead() }) // which needs a connection
			return err
		}
		large := draft("large", "key")
		large.Payload = make([]byte, 100<<10)
		b.Append(database.DB, append(drafts(30, func(i int) string { return fmt.Sprint(i % 3) }), large)...)
		r := b.start(database.DB, newChoosy("00004", errTest), c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		r.stop(t)
		require.Equal(t, 1, <-told)
		require.Equal(t, 30, b.history())
		b.effectsOnce(1)
	})
}

// history counts messages that are done and were kept.
func (b *bench) history() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_history")
}
