package admin_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// waiting writes four messages, one of each status, and returns them by status.
func (b *bench) waiting() map[admin.Status]admin.Message {
	b.Helper()
	later := draft("scheduled", "orders", "a")
	later.Delay = time.Hour
	b.append(draft("ready", "orders", "b"), later, draft("retrying", "orders", "c"), draft("parked", "orders", "d"))
	b.exec(b.database.Bind("UPDATE postbox_messages SET state = 2, attempts = 3, starts = 1, available_at = available_at + ? WHERE message_id = ?"),
		time.Hour.Microseconds(), []byte("retrying"))
	b.exec(b.database.Bind("UPDATE postbox_messages SET state = 2, attempts = 9, starts = 4, available_at = available_at + ? WHERE message_id = ?"),
		int64(dialect.ParkDelay), []byte("parked"))
	b.database.MoveWaiting(b)
	messages := map[admin.Status]admin.Message{}
	for _, m := range b.messages(admin.Filter{}) {
		messages[m.Status] = m
	}
	require.Len(b, messages, 4)
	return messages
}

// counted returns the attempts and starts of a message.
func (b *bench) counted(id int64) [2]int {
	b.Helper()
	return [2]int{
		b.database.Count(b.T, "SELECT attempts FROM postbox_messages WHERE id = ?", id),
		b.database.Count(b.T, "SELECT starts FROM postbox_messages WHERE id = ?", id),
	}
}

// version grows when drainers shall forget what they have in memory, and read anew.
func (b *bench) version() int {
	b.Helper()
	return b.database.Count(b.T, "SELECT version FROM postbox_spools WHERE id = ?", b.outboxID())
}

// Covers feature W3.
func TestRunNow_makes_a_waiting_message_due(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		before := b.waiting()
		for _, m := range before {
			require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, time.Time{})))
		}
		for status, m := range before {
			now := b.message(m.MessageID)
			require.WithinRange(t, now.DueAt, m.CreatedAt.Add(-time.Minute), time.Now().Add(10*time.Minute), status)
			if status != admin.Parked {
				require.Equal(t, status, now.Status)
				require.Equal(t, m.Attempts, now.Attempts)
			}
		}
		require.Equal(t, before[admin.Ready], b.message("ready"), "it is left as it is")
		require.Equal(t, [2]int{3, 1}, b.counted(before[admin.Retrying].ID))
		require.Equal(t, [2]int{0, 0}, b.counted(before[admin.Parked].ID), "it has all attempts again")
		require.Equal(t, admin.Retrying, b.message("parked").Status, "its key waits for it still")
		require.Len(t, b.whole(before[admin.Parked].ID).Failures, 1)
		require.Empty(t, b.whole(before[admin.Retrying].ID).Failures)

		due := b.message("scheduled").DueAt
		require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: before[admin.Scheduled].ID}, time.Time{})))
		require.Equal(t, due, b.message("scheduled").DueAt, "what is due is not put off")

		h, stop := b.drain(func(*spool.Message) error { return nil })
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		stop()
		require.Len(t, h.counts(), 4)
		for _, m := range before {
			require.ErrorIs(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, time.Time{})), admin.ErrNotFound)
		}
	})
}

func TestRunNow_wakes_the_drainers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		later := draft("later", "orders", "")
		later.Delay = time.Hour
		b.append(later)
		h := newHandler(func(*spool.Message) error { return nil })
		b.drainWith(database.DB, h, func(c *drain.Config) { // polls and renews once an hour
			c.PollMin, c.PollMax, c.Lease, c.Renew = time.Hour, time.Hour, 2*time.Hour, time.Hour
		})
		require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: b.message("later").ID}, time.Time{})))
		b.eventually(func() bool { return h.counts()["later"] == 1 }, "it is handled")
	})
}

// Covers feature W3.
func TestReschedule_sets_another_time_for_a_waiting_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		before := b.waiting()
		version := b.version()
		at := time.Now().Add(48 * time.Hour).In(time.FixedZone("elsewhere", 7*3600)).Truncate(time.Microsecond)
		for status, m := range before {
			_, err := b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, at)
			if status == admin.Ready {
				require.ErrorIs(t, err, admin.ErrRefused)
				require.ErrorContains(t, err, "may be running")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, version, b.version(), "nobody can have it in memory")
			now := b.message(m.MessageID)
			require.WithinDuration(t, at, now.DueAt, 0)
			if status == admin.Parked {
				require.Equal(t, admin.Retrying, now.Status)
				require.Equal(t, [2]int{0, 0}, b.counted(m.ID))
				continue
			}
			require.Equal(t, status, now.Status)
			require.Equal(t, m.Attempts, now.Attempts)
		}
		require.Equal(t, before[admin.Ready], b.message("ready"))

		soon := time.Now().Add(-time.Minute) // over, and so now
		require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: before[admin.Scheduled].ID}, soon)))
		h, _ := b.drain(func(*spool.Message) error { return nil })
		b.eventually(func() bool { return b.pending() == 2 }, "two are due")
		require.Equal(t, map[string]int{"ready": 1, "scheduled": 1}, h.counts())

		require.ErrorIs(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: before[admin.Scheduled].ID}, at)), admin.ErrNotFound)
		for _, never := range []time.Time{time.UnixMicro(dialect.ParkedFrom), time.UnixMicro(0)} {
			require.ErrorContains(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: before[admin.Parked].ID}, never)), "zero time")
		}
	})
}

// A message that is due and waits in the memory of a drainer behind another one is rescheduled: the
// drainer forgets it.
func TestReschedule_takes_a_message_out_of_the_memory_of_a_drainer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		first, second := draft("first", "orders", "key"), draft("second", "orders", "key")
		first.Delay, second.Delay = time.Millisecond, time.Millisecond
		b.append(first, second)
		gate := make(chan struct{})
		var entered atomic.Bool
		h := newHandler(func(*spool.Message) error {
			entered.Store(true)
			<-gate
			return nil
		})
		b.drainWith(database.DB, h, func(*drain.Config) {})
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open)
		b.eventually(entered.Load, "the first is being handled")
		require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: b.message("second").ID}, time.Now().Add(time.Hour))))
		b.append(draft("third", "orders", "other")) // is read after the drainer has heard of it
		b.eventually(func() bool {
			require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: b.message("first").ID}, time.Time{}))) // wakes it
			return database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE in_flight LIKE ?", `%{"orders":2}%`) == 1
		}, "the third is being handled too")
		open()
		b.append(draft("fourth", "orders", "key"))
		b.eventually(func() bool { return h.counts()["fourth"] == 1 }, "its key goes on")
		require.Zero(t, h.counts()["second"], "it would have come before")
		require.Len(t, h.counts(), 3)
	})
}

// Covers feature N7 and feature N8.
func TestBury_ends_a_waiting_message_with_the_reason_of_the_operator(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		before := b.waiting()
		version := b.version()
		b.run(b.statements.InsertFailure(dialect.Failure{
			Subject: spool.MessageSubject(before[admin.Parked].ID, before[admin.Parked].CreatedAt.UnixMicro()),
			Attempt: 9, Error: "handler says no", Process: "consumer",
		}))
		for status, m := range before {
			_, err := b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "nobody needs "+m.MessageID)
			require.NoError(t, err)
			if status != admin.Scheduled {
				version++ // what it held back can be read, and must be
			}
			require.Equal(t, version, b.version())
			require.ErrorIs(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "again")), admin.ErrNotFound)

			letter, err := b.admin.DeadLetter(t.Context(), b.only(admin.Filter{MessageID: m.MessageID}).ID)
			require.NoError(t, err)
			require.Equal(t, "buried by an operator: nobody needs "+m.MessageID, letter.Error)
			require.Equal(t, "payload of "+m.MessageID, string(letter.Payload))
			require.Equal(t, "\x00\xff", letter.Metadata["bytes"])
			require.Equal(t, m.Key, letter.Key)
			require.Equal(t, m.Attempts, letter.Attempts)
			require.Equal(t, m.CreatedAt, letter.CreatedAt)
			require.Equal(t, b.outbox.Name(), letter.Target.Name)
			last := letter.Failures[len(letter.Failures)-1]
			require.Equal(t, 0, last.Attempt)
			require.Equal(t, letter.Error, last.Error)
			if status == admin.Parked {
				require.Len(t, letter.Failures, 2)
				require.Equal(t, "handler says no", letter.Failures[0].Error)
			}
		}
		require.Zero(t, b.pending())
		require.ErrorContains(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: before[admin.Ready].ID}, " \n")), "the reason is empty: give one")

		resolved := b.only(admin.Filter{MessageID: "parked"})
		require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: resolved.ID}, "paid by hand")))
		require.NoError(t, errorOf(b.admin.Requeue(t.Context(), admin.Filter{ID: b.only(admin.Filter{MessageID: "scheduled"}).ID}, admin.Again{})))
		account, err := b.admin.Account(t.Context(), b.target)
		require.NoError(t, err)
		require.Equal(t, admin.Account{Written: 4, Pending: 1, Dead: 2, Resolved: 1}, account)
	})
}

// The head of a key is parked, and the drainer has read on. When an operator buries the head, the
// drainer finds the key's other messages at once. Also covers feature N8.
func TestBury_of_a_parked_head_lets_its_key_go_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		h := newHandler(func(m *spool.Message) error {
			if m.MessageID == "head" {
				return postbox.Permanent(errBroker)
			}
			return nil
		})
		b.drainWith(database.DB, h, func(c *drain.Config) { c.Head = drain.HeadPark })
		b.append(draft("head", "orders", "key"), draft("behind", "orders", "key"))
		b.eventually(func() bool { return b.info().Parked == 1 }, "it is parked")
		for range 10 {
			b.append(draft(postbox.NewMessageID(), "orders", ""))
		}
		b.eventually(func() bool { return b.pending() == 2 }, "the others flow")
		require.Zero(t, h.counts()["behind"])
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: b.message("head").ID}, "no")))
		b.eventually(func() bool { return b.pending() == 0 }, "its key goes on")
		require.Equal(t, 1, h.counts()["behind"])
		require.Equal(t, 1, b.dead())
	})
}

// A ready message that waits in the memory of a drainer behind another one is buried: the drainer
// forgets it, and its key goes on.
func TestBury_takes_a_ready_message_out_of_the_memory_of_a_drainer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("first", "orders", "key"), draft("second", "orders", "key"))
		gate := make(chan struct{})
		var entered atomic.Bool
		h := newHandler(func(*spool.Message) error {
			entered.Store(true)
			<-gate
			return nil
		})
		b.drainWith(database.DB, h, func(*drain.Config) {})
		open := sync.OnceFunc(func() { close(gate) })
		t.Cleanup(open)
		b.eventually(entered.Load, "the first is being handled")
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: b.message("second").ID}, "no")))
		b.append(draft("third", "orders", "other")) // is read after the drainer has heard of it
		b.eventually(func() bool {
			require.NoError(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: b.message("first").ID}, time.Time{}))) // wakes it
			return database.Count(t, "SELECT COUNT(*) FROM postbox_members WHERE in_flight LIKE ?", `%{"orders":2}%`) == 1
		}, "the third is being handled too")
		open()
		b.append(draft("fourth", "orders", "key"))
		b.eventually(func() bool { return h.counts()["fourth"] == 1 && b.pending() == 0 }, "its key goes on")
		require.Zero(t, h.counts()["second"], "it would have come before")
		require.Equal(t, "second", b.only(admin.Filter{}).MessageID)
	})
}
