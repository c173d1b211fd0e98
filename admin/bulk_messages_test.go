package admin_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// messageAction is an action on many pending messages.
type messageAction func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress func(admin.Progress)) (int, error)

func eachMessageAction(t *testing.T, test func(b *bench, name string, act messageAction)) {
	t.Helper()
	for name, act := range map[string]messageAction{
		"run now": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Reschedule(ctx, f, time.Time{}, progress)
		},
		"reschedule": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Reschedule(ctx, f, time.Now().Add(time.Hour), progress)
		},
		"bury": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Bury(ctx, f, "not needed", progress)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) { test(newBench(t, database), name, act) })
		})
	}
}

// parked writes messages of three keys that are parked.
func (b *bench) parked(n int) {
	b.Helper()
	b.append(numbered(n)...)
	b.fail("1 = 1", true)
}

func TestBulkOfMessages_G10_interrupted_goes_on_with_a_second_call(t *testing.T) {
	t.Parallel()
	eachMessageAction(t, func(b *bench, name string, act messageAction) {
		const n = 250
		b.parked(n)
		filter := admin.Filter{Target: b.target, Status: admin.Parked}
		ctx, stop := context.WithCancel(b.Context())
		var seen []int
		did, err := act(ctx, b.admin, filter, func(p admin.Progress) {
			if seen = append(seen, p.Done); p.Done >= 200 {
				stop()
			}
		})
		require.ErrorIs(b, err, context.Canceled)
		require.Equal(b, []int{100, 200}, seen)
		require.Equal(b, 200, did)
		require.Equal(b, 200, b.database.Count(b.T, "SELECT affected FROM postbox_audit"))
		require.Equal(b, n-200, b.info().Parked)

		for _, left := range []int{50, 0} {
			did, err = act(b.Context(), b.admin, filter, nil)
			require.NoError(b, err)
			require.Equal(b, left, did)
			require.Zero(b, b.info().Parked)
		}
		require.Equal(b, []string{
			name + ` [] {status "PARKED"} 200`, name + ` [] {status "PARKED"} 50`, name + ` [] {status "PARKED"} 0`,
		}, b.deeds())
		require.Equal(b, n, b.pending()+b.dead(), "nothing is lost")
	})
}

// Also covers F22.
func TestBulkOfMessages_G9_operators_with_the_same_filter_change_each_message_once(t *testing.T) {
	t.Parallel()
	eachMessageAction(t, func(b *bench, _ string, act messageAction) {
		const n, operators = 230, 10
		b.parked(n)
		var all sync.WaitGroup
		var did atomic.Int64
		errs := make(chan error, operators)
		for range operators {
			operator := b.operator(b.database)
			all.Go(func() {
				done, err := act(b.Context(), operator, admin.Filter{Target: b.target, Status: admin.Parked}, nil)
				did.Add(int64(done))
				errs <- err
			})
		}
		all.Wait()
		close(errs)
		for err := range errs {
			require.NoError(b, err)
		}
		require.EqualValues(b, n, did.Load())
		require.Equal(b, n, b.database.Count(b.T, "SELECT SUM(affected) FROM postbox_audit"))
		require.Equal(b, n, b.pending()+b.dead())
	})
}

func TestBulkOfMessages_filters_by_error_attempts_and_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "invoices", "c"), draft("4", "orders", "d"), draft("5", "orders", "e"))
		b.fail("message_id <> ?", true, []byte("5"))
		database.Exec(t, "UPDATE postbox_messages SET attempts = 7 WHERE message_id = ?", []byte("2"))
		at := time.Now().Add(-48 * time.Hour)
		database.Exec(t, "UPDATE postbox_messages SET created_at = ? WHERE message_id = ?", at.UnixMicro(), []byte("4"))
		for _, m := range b.messages(admin.Filter{Target: b.target, Status: admin.Parked}) {
			for _, text := range []string{"first", "card declined 100% by " + m.MessageID} {
				b.run(b.statements.InsertFailure(dialect.Failure{Subject: spool.MessageSubject(m.ID, m.CreatedAt.UnixMicro()), Attempt: 1, Error: text}))
			}
		}
		for _, test := range []struct {
			filter admin.Filter
			want   []string
		}{
			{admin.Filter{ErrorText: "100% by"}, []string{"1", "2", "3", "4"}},
			{admin.Filter{ErrorText: "declined 100% by 3"}, []string{"3"}},
			{admin.Filter{ErrorText: "first"}, nil}, // not the last failure
			{admin.Filter{ErrorText: "Card"}, nil},
			{admin.Filter{MinAttempts: 4}, []string{"2"}},
			{admin.Filter{MinAttempts: 3, Topic: "orders"}, []string{"1", "2", "4"}},
			{admin.Filter{Until: at.Add(time.Hour)}, []string{"4"}},
			{admin.Filter{From: at.Add(time.Hour)}, []string{"1", "2", "3", "5"}},
			{admin.Filter{From: at, Until: at}, nil},
		} {
			test.filter.Target = b.target
			var got []string
			for _, m := range b.messages(test.filter) {
				got = append(got, m.MessageID)
			}
			slices.Sort(got)
			require.Equal(t, test.want, got, "%+v", test.filter)
		}
		filter := admin.Filter{Target: b.target, ErrorText: "declined", MinAttempts: 7}
		did, err := b.admin.Bury(t.Context(), filter, "no")
		require.NoError(t, err)
		require.Equal(t, 1, did)
		require.Equal(t, "2", b.only(admin.Filter{}).MessageID)
		require.Equal(t, []string{`bury [] {error with "declined", attempts from 7} 1`}, b.deeds())
	})
}

func TestBulkOfMessages_refuses_mistakes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", ""))
	ctx := t.Context()
	_, err := b.admin.Reschedule(ctx, admin.Filter{Target: b.target, Status: admin.Ready, Limit: -1, MinAttempts: -1, ErrorText: "\x00", After: "0-0-1"}, time.Time{})
	require.ErrorIs(t, err, admin.ErrRefused)
	for _, part := range []string{"SCHEDULED, RETRYING or PARKED", "limit: -1", "attempts: -1", "error text", "after: it is for lists"} {
		require.ErrorContains(t, err, part)
	}
	_, err = b.admin.Reschedule(ctx, admin.Filter{Target: b.target, Status: "GONE"}, time.UnixMicro(0))
	require.ErrorContains(t, err, "a message cannot wait until")
	require.ErrorContains(t, err, `"GONE" is not one of`)
	_, err = b.admin.Bury(ctx, admin.Filter{All: true, Target: b.target}, " ")
	require.ErrorContains(t, err, "the reason is empty")
	_, err = b.admin.Bury(ctx, admin.Filter{All: true, Target: admin.Outbox("missing")}, "no")
	require.ErrorIs(t, err, admin.ErrNotFound)
	require.Empty(t, b.deeds())
	require.Equal(t, 1, b.pending())

	for _, act := range []func() (int, error){
		func() (int, error) {
			return b.admin.Reschedule(ctx, admin.Filter{All: true, Target: b.target}, time.Time{})
		},
		func() (int, error) {
			return b.admin.Reschedule(ctx, admin.Filter{All: true, Target: b.target}, time.Now().Add(time.Hour))
		},
	} {
		did, err := act()
		require.NoError(t, err)
		require.Zero(t, did, "a ready message stays as it is")
	}
}

// Keys with a parked head and messages behind it: all of them are made due, run one after the
// other, and are buried in their order.
func TestBulkOfMessages_G3_keeps_the_order_of_keys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const n, keys = 120, 3
		b.append(numbered(n)...)
		b.fail("id < (SELECT f.id FROM (SELECT MIN(id) + 3 AS id FROM postbox_messages) f)", true)
		did, err := b.admin.Bury(t.Context(), admin.Filter{All: true, Target: b.target, Limit: 100}, "broker changed")
		require.NoError(t, err)
		require.Equal(t, 100, did)
		did, err = b.admin.Bury(t.Context(), admin.Filter{All: true, Target: b.target}, "broker changed")
		require.NoError(t, err)
		require.Equal(t, n-100, did)
		inOrder := func(ids []string, what string) {
			last := map[int]string{}
			for _, id := range ids {
				number, err := strconv.Atoi(id)
				require.NoError(t, err)
				require.Greater(t, id, last[number%keys], what)
				last[number%keys] = id
			}
			require.Len(t, ids, n)
		}
		inOrder(ids(b.list(admin.Filter{Limit: n})), "dead letters")
		_, err = b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{})
		require.NoError(t, err)

		b.fail("message_id < ?", true, []byte("0003"))
		var handled order
		h := newHandler(func(m *spool.Message) error { handled.note(m); return nil })
		b.drainTwice(h, func(c *drain.Config) { c.Head = drain.HeadPark })
		did, err = b.admin.Reschedule(t.Context(), admin.Filter{Target: b.target, Status: admin.Parked}, time.Time{})
		require.NoError(t, err)
		require.Equal(t, keys, did)
		b.eventually(func() bool { return b.pending() == 0 }, "all are handled")
		inOrder(handled.ids(), "handled")
	})
}

// Messages with large payloads are buried in transactions of few of them.
func TestBulkOfMessages_bounds_the_bytes_of_a_transaction(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for i := range 6 {
		d := draft(fmt.Sprint(i), "orders", "key")
		d.Payload = []byte(strings.Repeat("x", 1500<<10))
		b.append(d)
	}
	var seen []int
	did, err := b.admin.Bury(t.Context(), admin.Filter{All: true, Target: b.target}, "too large", func(p admin.Progress) { seen = append(seen, p.Done) })
	require.NoError(t, err)
	require.Equal(t, 6, did)
	require.Equal(t, []int{2, 4, 6}, seen)
}

// A message may fail once more, for another reason, after the page that it is on was read.
func TestBulkOfMessages_leaves_a_message_whose_last_error_has_changed_meanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	large := draft("1", "orders", "a")
	large.Payload = make([]byte, 3<<20) // two of them are two transactions
	other := large
	other.MessageID, other.Key = "2", "b"
	b.append(large, other)
	b.fail("1 = 1", true)
	found := b.messages(admin.Filter{Target: b.target, Status: admin.Parked})
	require.Len(t, found, 2)
	fails := func(m admin.Message, text string) {
		b.run(b.statements.InsertFailure(dialect.Failure{Subject: spool.MessageSubject(m.ID, m.CreatedAt.UnixMicro()), Attempt: 1, Error: text}))
	}
	for _, m := range found {
		fails(m, "card declined")
	}
	did, err := b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ErrorText: "declined"}, "no", func(p admin.Progress) {
		if p.Done == 1 {
			fails(found[1], "timeout")
		}
	})
	require.NoError(t, err)
	require.Equal(t, 1, did)
	left := b.messages(admin.Filter{Target: b.target})
	require.Len(t, left, 1)
	require.Equal(t, found[1].ID, left[0].ID)
}
