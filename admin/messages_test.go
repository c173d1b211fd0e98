package admin_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func (b *bench) messages(filter admin.Filter) []admin.Message {
	b.Helper()
	messages, _ := b.page(filter)
	return messages
}

// page returns a page of messages, and the cursor of the next one.
func (b *bench) page(filter admin.Filter) (messages []admin.Message, next string) {
	b.Helper()
	filter.Target = b.target
	messages, next, err := b.admin.Messages(b.Context(), filter)
	require.NoError(b, err)
	return messages, next
}

// message returns the pending message with this id of its producer.
func (b *bench) message(id string) admin.Message {
	b.Helper()
	messages := b.messages(admin.Filter{MessageID: id})
	require.Len(b, messages, 1)
	return messages[0]
}

// whole reads a message with all that belongs to it.
func (b *bench) whole(id int64) *admin.Message {
	b.Helper()
	m, err := b.admin.Message(b.Context(), admin.Filter{Target: b.target, ID: id})
	require.NoError(b, err)
	return m
}

// Covers feature 0.7.
func TestMessages_shows_status_attempts_due_time_and_failures(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		before := time.Now().Add(-time.Hour)
		b.append(draft("failing", "orders", "a"), draft("parked", "orders", "b"), draft("done", "orders", "c"))
		tried := func(id string) int { return len(b.whole(b.message(id).ID).Failures) }
		h := newHandler(func(m *spool.Message) error {
			switch m.MessageID {
			case "failing", "parked":
				return errBroker
			}
			return nil
		})
		stop := b.drainWith(database.DB, h, func(c *drain.Config) { c.Head, c.History = drain.HeadPark, time.Hour })
		b.eventually(func() bool { return b.pending() == 2 && tried("failing") == 2 && tried("parked") == 2 }, "all have had their turns")
		stop()
		due := time.Now().Add(3 * time.Hour).Truncate(time.Microsecond)
		b.exec(database.Bind("UPDATE postbox_messages SET attempts = 1, available_at = ? WHERE message_id = ?"), due.UnixMicro(), []byte("failing"))
		later := draft("scheduled", "orders", "")
		later.Due = due
		b.append(draft("ready", "orders", "key"))
		b.append(later)

		statuses := map[string]admin.Message{}
		for _, m := range b.messages(admin.Filter{}) {
			statuses[m.MessageID] = m
			require.Equal(t, "orders", m.Topic)
			require.WithinRange(t, m.CreatedAt, before, time.Now().Add(time.Hour))
			require.Greater(t, m.Size, len("payload of "+m.MessageID))
			require.Nil(t, m.Payload)
			require.Nil(t, m.Metadata)
			require.Nil(t, m.Failures)
			require.True(t, m.DoneAt.IsZero())
		}
		require.Len(t, statuses, 4)
		for id, want := range map[string]struct {
			status   admin.Status
			attempts int
			due      time.Time
			key      string
		}{
			"ready":     {admin.Ready, 0, statuses["ready"].CreatedAt, "key"},
			"scheduled": {admin.Scheduled, 0, due, ""},
			"failing":   {admin.Retrying, 1, due, "a"},
			"parked":    {admin.Parked, 2, time.Time{}, "b"},
		} {
			m := statuses[id]
			require.Equal(t, want.status, m.Status, id)
			require.Equal(t, want.attempts, m.Attempts, id)
			require.WithinDuration(t, want.due, m.DueAt, time.Millisecond, id)
			require.Equal(t, want.key, m.Key)
		}

		whole := b.whole(statuses["parked"].ID)
		require.Equal(t, "payload of parked", string(whole.Payload))
		require.Equal(t, map[string]string{"about": "parked", "bytes": "\x00\xff"}, map[string]string(whole.Metadata))
		require.Len(t, whole.Failures, 2)
		for i, failure := range whole.Failures {
			require.Equal(t, i+1, failure.Attempt)
			require.Equal(t, errBroker.Error(), failure.Error)
			require.Equal(t, "forwarder", failure.Process)
			require.WithinRange(t, failure.At, before, time.Now().Add(time.Hour))
		}
		whole.Payload, whole.Metadata, whole.Failures = nil, nil, nil
		require.Equal(t, statuses["parked"], *whole)

		listed, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: b.target, Status: admin.Done})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		done := listed[0]
		require.Equal(t, admin.Done, done.Status)
		require.Equal(t, "done", done.MessageID)
		require.Equal(t, 1, done.Attempts)
		require.True(t, done.DueAt.IsZero())
		require.False(t, done.DoneAt.Before(done.CreatedAt))
		require.WithinRange(t, done.DoneAt, before, time.Now().Add(time.Hour))
		whole = b.whole(done.ID)
		require.Equal(t, "payload of done", string(whole.Payload))
		whole.Payload, whole.Metadata = nil, nil
		require.Equal(t, done, *whole)

		b.exec(database.Bind("UPDATE postbox_messages SET metadata = ? WHERE message_id = ?"), []byte("{"), []byte("ready"))
		require.Nil(t, b.whole(statuses["ready"].ID).Metadata, "it can be looked at all the same")
		_, err = b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: done.ID + 1000})
		require.ErrorIs(t, err, admin.ErrNotFound)
		require.ErrorContains(t, err, b.target.String())
	})
}

// A database that goes back to an earlier state gives out ids again, and so does one whose sequence
// is behind.
func TestMessages_F27_a_message_with_a_reused_id_shows_no_failures_of_the_earlier_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("new", "orders", ""))
		m := b.message("new")
		created := m.CreatedAt.UnixMicro()
		earlier := dialect.Failure{Subject: spool.MessageSubject(m.ID, created-1), Attempt: 3, Error: "of the earlier message", Process: "forwarder"}
		b.run(b.statements.InsertFailure(earlier))
		require.Empty(t, b.whole(m.ID).Failures)

		own := dialect.Failure{Subject: spool.MessageSubject(m.ID, created), Attempt: 1, Error: "its own", Process: "forwarder"}
		b.run(b.statements.InsertFailure(own))
		require.Len(t, b.whole(m.ID).Failures, 1)
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "enough")))
		letter, err := b.admin.DeadLetter(t.Context(), b.only(admin.Filter{MessageID: "new"}).ID)
		require.NoError(t, err)
		require.Len(t, letter.Failures, 2, "its own, and what the operator said")
	})
}

func TestMessages_lists_only_the_messages_of_its_target(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("mine", "orders", ""))
		other := spool.New(b.statements, spool.QueuePrefix+"q")
		require.NoError(t, other.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft("theirs", "q", "")}))
		mine := b.messages(admin.Filter{})
		require.Len(t, mine, 1)
		theirs, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: admin.Queue("q")})
		require.NoError(t, err)
		require.Len(t, theirs, 1)
		require.Equal(t, "theirs", theirs[0].MessageID)
		_, err = b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: theirs[0].ID})
		require.ErrorIs(t, err, admin.ErrNotFound)
		require.ErrorIs(t, errorOf(b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, ID: theirs[0].ID}, time.Time{})), admin.ErrNotFound)
		require.ErrorIs(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: theirs[0].ID}, "no")), admin.ErrNotFound)
		b.exec(database.Bind(b.insertHistory()), 1001, b.outboxID(), 1)
		_, err = b.admin.Message(t.Context(), admin.Filter{Target: admin.Queue("q"), ID: 1001})
		require.ErrorIs(t, err, admin.ErrNotFound)
	})
}

// thousands writes messages of all kinds, and returns their number.
func (b *bench) thousands() int {
	b.Helper()
	const n = 3000
	drafts := make([]spool.Draft, n)
	for i := range drafts {
		drafts[i] = draft(strconv.Itoa(i), []string{"orders", "refunds", "Orders"}[i%3], []string{"", "a", "b\x00", "c"}[i%4])
		if i%5 == 0 {
			drafts[i].Delay = time.Hour
		}
	}
	b.append(drafts...)
	b.exec("UPDATE postbox_messages SET state = 2, attempts = 1 WHERE state = 0 AND id % 7 = 0")
	b.exec(b.database.Bind("UPDATE postbox_messages SET available_at = available_at + ? WHERE state = 2 AND id % 2 = 0"), int64(1)<<62)
	b.database.MoveWaiting(b)
	return n
}

// pages reads all pages and requires that they are in order and have each message once.
func (b *bench) pages(filter admin.Filter) []admin.Message {
	b.Helper()
	var all []admin.Message
	seen := map[int64]bool{}
	for {
		page, next := b.page(filter)
		for _, m := range page {
			require.False(b, seen[m.ID], "message %d comes once", m.ID)
			seen[m.ID] = true
		}
		all = append(all, page...)
		if filter.After = next; next == "" {
			return all
		}
	}
}

func TestMessages_pages_through_thousands_with_filters(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		total := b.thousands()
		all := b.pages(admin.Filter{Limit: 137})
		require.Len(t, all, total)
		number := map[admin.Status]int{admin.Ready: 0, admin.Scheduled: 1, admin.Retrying: 2, admin.Parked: 2}
		for i := 1; i < len(all); i++ {
			require.LessOrEqual(t, number[all[i-1].Status], number[all[i].Status], "in the order of the states")
		}
		require.Len(t, b.messages(admin.Filter{}), 100)

		for name, test := range map[string]struct {
			filter admin.Filter
			want   func(m admin.Message) bool
		}{
			"ready":      {admin.Filter{Status: admin.Ready}, func(m admin.Message) bool { return m.Status == admin.Ready }},
			"scheduled":  {admin.Filter{Status: admin.Scheduled}, func(m admin.Message) bool { return m.Status == admin.Scheduled }},
			"retrying":   {admin.Filter{Status: admin.Retrying}, func(m admin.Message) bool { return m.Status == admin.Retrying }},
			"parked":     {admin.Filter{Status: admin.Parked}, func(m admin.Message) bool { return m.Status == admin.Parked }},
			"topic":      {admin.Filter{Topic: "orders"}, func(m admin.Message) bool { return m.Topic == "orders" }},
			"key":        {admin.Filter{Key: "b\x00"}, func(m admin.Message) bool { return m.Key == "b\x00" }},
			"message id": {admin.Filter{MessageID: "1234"}, func(m admin.Message) bool { return m.MessageID == "1234" }},
			"nothing":    {admin.Filter{Topic: "nothing"}, func(admin.Message) bool { return false }},
			"together": {
				admin.Filter{Status: admin.Ready, Topic: "refunds", Key: "a"},
				func(m admin.Message) bool { return m.Status == admin.Ready && m.Topic == "refunds" && m.Key == "a" },
			},
		} {
			var want []admin.Message
			for _, m := range all {
				if test.want(m) {
					want = append(want, m)
				}
			}
			require.Equal(t, name != "nothing", len(want) > 0, name)
			test.filter.Limit = 91
			require.Equal(t, want, b.pages(test.filter), name)
		}
	})
}

// While pages are read, messages fail and move on, new ones come and old ones go: what is pending
// all the while is seen.
func TestMessages_misses_no_pending_message_while_messages_move(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		total := b.thousands()
		seen := map[int64]bool{}
		filter := admin.Filter{Limit: 100}
		for {
			page, next := b.page(filter)
			for _, m := range page {
				seen[m.ID] = true
			}
			if filter.After = next; next == "" {
				break
			}
			b.exec("UPDATE postbox_messages SET state = 2, attempts = attempts + 1 WHERE id % 11 = " + strconv.Itoa(len(seen)%11))
			database.MoveWaiting(t)
		}
		require.Len(t, seen, total)
	})
}

func TestMessages_refuses_invalid_filters(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", ""))
	for want, filter := range map[string]admin.Filter{
		"limit: 1001 is above 1000": {Limit: 1001}, "limit: -1 is negative": {Limit: -1},
		`status: "FAILED" is not one of READY`:        {Status: "FAILED"},
		`after: "3-1-1" is not a cursor of this list`: {After: "3-1-1"}, `after: "1-1-1x" is not`: {After: "1-1-1x"}, `after: "x" is not`: {After: "x"},
		`topic: "\xff" is not text`: {Topic: "\xff"}, "created: from ": {From: time.Unix(2, 0), Until: time.Unix(1, 0)},
	} {
		filter.Target = b.target
		_, _, err := b.admin.Messages(t.Context(), filter)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, b.target.String())
	}
	for want, filter := range map[string]admin.Filter{
		"limit: 1001 is above 1000": {Limit: 1001}, `after: "1-1-1" is not a cursor of this list`: {After: "1-1-1"},
		`topic: "\x00" is not text`: {Topic: "\x00"}, "done: from ": {From: time.Unix(2, 0), Until: time.Unix(1, 0)},
	} {
		filter.Target, filter.Status = b.target, admin.Done
		_, _, err := b.admin.Messages(t.Context(), filter)
		require.ErrorContains(t, err, want)
	}
}

func TestDone_pages_with_filters_the_latest_first(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		outbox, total := b.outboxID(), 1000
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		var rows []string
		for i := range total { // many at the same moment, as one statement settles them
			rows = append(rows, fmt.Sprintf("(%d, %d, '%s', 'id', 'payload', '{}', 1, %d, 2)",
				i+1, outbox, []string{"orders", "refunds"}[i%2], at.Add(time.Duration(i/300)*time.Minute).UnixMicro()))
		}
		b.exec("INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts) VALUES " +
			strings.Join(rows, ", "))
		b.exec(database.Bind("UPDATE postbox_history SET message_id = ? WHERE id = 78"), []byte("id77"))
		for i, key := range []string{"b", "", "a"} {
			if key != "" {
				b.exec(database.Bind("UPDATE postbox_history SET ordering_key = ? WHERE id % 3 = ?"), []byte(key), i)
			}
		}
		b.exec(database.Bind(b.insertHistory()), 5000, outbox+1, 1) // of another one

		pages := func(filter admin.Filter) (all []admin.Message) {
			filter.Target, filter.Status, filter.Limit = b.target, admin.Done, 77
			for {
				page, next, err := b.admin.Messages(t.Context(), filter)
				require.NoError(t, err)
				all = append(all, page...)
				if filter.After = next; next == "" {
					return all
				}
			}
		}
		all := pages(admin.Filter{})
		require.Len(t, all, total)
		for i, m := range all {
			require.EqualValues(t, total-i, m.ID)
		}
		for name, test := range map[string]struct {
			filter admin.Filter
			want   int
		}{
			"topic": {admin.Filter{Topic: "orders"}, 500}, "key": {admin.Filter{Key: "a"}, 333},
			"message id": {admin.Filter{MessageID: "id77"}, 1},
			"after":      {admin.Filter{From: at.Add(time.Minute)}, 700},
			"before":     {admin.Filter{Until: at.Add(time.Minute)}, 300},
			"together": {
				admin.Filter{Topic: "orders", Key: "b", From: at.Add(time.Minute), Until: at.Add(2 * time.Minute)}, 50,
			},
		} {
			require.Len(t, pages(test.filter), test.want, name)
		}
	})
}
