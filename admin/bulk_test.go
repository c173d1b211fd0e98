package admin_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// bulkAction is an action on many letters.
type bulkAction func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress func(admin.Progress)) (int, error)

// eachBulkAction runs a test for each of them, on each database.
func eachBulkAction(t *testing.T, test func(b *bench, name string, act bulkAction)) {
	t.Helper()
	for name, act := range map[string]bulkAction{
		"requeue": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Requeue(ctx, f, admin.Again{}, progress)
		},
		"resolve": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Resolve(ctx, f, "paid by hand", progress)
		},
		"delete": func(ctx context.Context, a *admin.Admin, f admin.Filter, progress func(admin.Progress)) (int, error) {
			f.All = true
			return a.Delete(ctx, f, progress)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) { test(newBench(t, database), name, act) })
		})
	}
}

// letters writes dead letters of the outbox, without a drainer, in the order of their ids.
func (b *bench) letters(n int) {
	b.Helper()
	metadata, err := spool.EncodeMetadata(map[string]string{"about": "letters"})
	require.NoError(b, err)
	outbox := b.outboxID()
	tx, err := b.database.DB.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for i := range n {
		key := fmt.Appendf(nil, "key %d", i%7)
		_, err := tx.ExecContext(b.Context(), b.database.Bind(`INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, ordering_key,
			key_hash, payload, metadata, created_at, died_at, attempts, error, cause) VALUES (0, ?, ?, '', 'orders', ?, ?, ?, ?, ?, 1, 1, ?, ?, ?)`),
			fmt.Appendf(nil, "subject %d", i), outbox, fmt.Appendf(nil, "%05d", i), key, keyhash.Of(string(key)), []byte("payload"), metadata,
			1+i%4, fmt.Sprintf("card %d declined", 4711+i), 1+i%5)
		require.NoError(b, err)
	}
	require.NoError(b, tx.Commit())
}

// What was done before the interruption is done once. The row of the action says how many.
func TestBulk_G10_interrupted_goes_on_with_a_second_call(t *testing.T) {
	t.Parallel()
	eachBulkAction(t, func(b *bench, name string, act bulkAction) {
		const n = 250
		b.letters(n)
		ctx, stop := context.WithCancel(b.Context())
		var seen []int
		did, err := act(ctx, b.admin, admin.Filter{}, func(p admin.Progress) {
			if seen = append(seen, p.Done); p.Done >= 200 {
				stop()
			}
		})
		require.ErrorIs(b, err, context.Canceled)
		require.Equal(b, []int{100, 200}, seen)
		require.Equal(b, 200, did)
		require.Equal(b, 200, b.database.Count(b.T, "SELECT affected FROM postbox_audit"))
		require.Len(b, b.list(admin.Filter{}), n-200)

		did, err = act(b.Context(), b.admin, admin.Filter{}, nil)
		require.NoError(b, err)
		require.Equal(b, 50, did)
		require.Empty(b, b.list(admin.Filter{}))
		did, err = act(b.Context(), b.admin, admin.Filter{}, nil)
		require.NoError(b, err)
		require.Zero(b, did)
		require.Equal(b, []string{
			name + " [] {not resolved} 200", name + " [] {not resolved} 50", name + " [] {not resolved} 0",
		}, b.deeds())
	})
}

// deeds returns the actions without actors and notes.
func (b *bench) deeds() []string {
	b.Helper()
	entries, _, err := b.admin.Audit(b.Context(), admin.Filter{})
	require.NoError(b, err)
	var deeds []string
	for _, e := range slices.Backward(entries) {
		deeds = append(deeds, fmt.Sprintf("%s [%s] {%s} %d", e.Action, e.Subject, e.Filter, e.Affected))
	}
	return deeds
}

// Also covers F22: each letter is done once, the numbers of all add up, and the order within each
// key is kept.
func TestBulk_G9_ten_operators_with_the_same_filter_do_each_letter_once(t *testing.T) {
	t.Parallel()
	eachBulkAction(t, func(b *bench, name string, act bulkAction) {
		const n, operators = 230, 10
		b.letters(n)
		done, errs := make([]int, operators), make([]error, operators)
		var all sync.WaitGroup
		for i := range operators {
			operator := b.operator(b.database)
			all.Go(func() { done[i], errs[i] = act(b.Context(), operator, admin.Filter{Topic: "orders"}, nil) })
		}
		all.Wait()
		sum := 0
		for i := range operators {
			require.NoError(b, errs[i])
			sum += done[i]
		}
		require.Equal(b, n, sum)
		require.Equal(b, n, b.database.Count(b.T, "SELECT SUM(affected) FROM postbox_audit"))
		require.Equal(b, operators, b.database.Count(b.T, "SELECT COUNT(*) FROM postbox_audit"))
		require.Empty(b, b.list(admin.Filter{}))
		if name == "requeue" {
			b.inOrder(n)
		}
	})
}

// inOrder requires that each of the messages is pending once, and those of a key in the order of
// their letters.
func (b *bench) inOrder(n int) {
	b.Helper()
	messages, _, err := b.admin.Messages(b.Context(), admin.Filter{Target: b.target, Limit: 1000})
	require.NoError(b, err)
	require.Len(b, messages, n)
	slices.SortFunc(messages, func(x, y admin.Message) int { return int(x.ID - y.ID) })
	last := map[string]string{}
	for _, m := range messages {
		require.Less(b, last[m.Key], m.MessageID, "of %s", m.Key)
		last[m.Key] = m.MessageID
	}
}

// A transaction has few letters if they are large, and at least one.
func TestBulk_G8_bounds_the_bytes_of_a_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(5)
		for i, size := range []int{5 << 20, 1 << 20, 1 << 20, 1 << 20, 3 << 20} {
			database.Exec(t, "UPDATE postbox_dead_letters SET payload = ? WHERE message_id = ?", make([]byte, size), fmt.Appendf(nil, "%05d", i))
		}
		var seen []int
		_, err := b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{}, func(p admin.Progress) { seen = append(seen, p.Done) })
		require.NoError(t, err)
		require.Equal(t, []int{1, 4, 5}, seen)
	})
}

func TestBulk_ResolveAll_and_DeleteAll_check_their_filter(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(6)
	_, err := b.admin.Resolve(t.Context(), admin.Filter{All: true}, " ")
	require.ErrorContains(t, err, "the reason is empty")
	_, err = b.admin.Resolve(t.Context(), admin.Filter{Resolved: "yes"}, "why")
	require.ErrorIs(t, err, admin.ErrRefused)
	did, err := b.admin.Resolve(t.Context(), admin.Filter{All: true, Limit: 4}, "why")
	require.NoError(t, err)
	require.Equal(t, 4, did)
	did, err = b.admin.Delete(t.Context(), admin.Filter{Resolved: "yes", Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 1, did)
	did, err = b.admin.Delete(t.Context(), admin.Filter{All: true})
	require.NoError(t, err)
	require.Equal(t, 2, did, "the resolved ones stay")
	did, err = b.admin.Delete(t.Context(), admin.Filter{Resolved: "any", All: true})
	require.NoError(t, err)
	require.Equal(t, 3, did)
	_, err = b.admin.Delete(t.Context(), admin.Filter{All: true, Limit: -1})
	require.ErrorContains(t, err, "limit: -1 is negative")
}

func TestFilter_chooses_by_each_field(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(12)
		b.buryInbox("from a broker", 0)
		_, err := spool.New(b.statements, "other").Open(t.Context(), database.DB)
		require.NoError(t, err)
		for name, test := range map[string]struct {
			filter admin.Filter
			want   []string
		}{
			"target":          {admin.Filter{Target: b.target, Limit: 2}, []string{"00000", "00001"}},
			"another target":  {admin.Filter{Target: admin.Outbox("other")}, nil},
			"consumer":        {admin.Filter{Consumer: "billing"}, []string{"from a broker"}},
			"key":             {admin.Filter{Key: "key 3"}, []string{"00003", "00010"}},
			"error":           {admin.Filter{ErrorText: "d 4722 d"}, []string{"00011"}},
			"error as it is":  {admin.Filter{ErrorText: "D 4722 D"}, nil},
			"no wildcard":     {admin.Filter{ErrorText: "card %"}, nil},
			"cause":           {admin.Filter{Cause: "operator"}, []string{"00004", "00009"}},
			"unknown cause":   {admin.Filter{Cause: "unknown"}, []string{"from a broker"}},
			"attempts":        {admin.Filter{MinAttempts: 4, Target: b.target}, []string{"00003", "00007", "00011"}},
			"most attempts":   {admin.Filter{MaxAttempts: 1}, []string{"00000", "00004", "00008"}},
			"attempts and id": {admin.Filter{MinAttempts: 2, MaxAttempts: 2, MessageID: "00005"}, []string{"00005"}},
		} {
			require.Equal(t, test.want, ids(b.list(test.filter)), name)
		}
	})
}

func TestFilter_names_its_mistakes_and_its_fields(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(1)
	mistakes := func(filter admin.Filter) error {
		_, _, err := b.admin.DeadLetters(t.Context(), filter)
		return err
	}
	err := mistakes(admin.Filter{ErrorText: "\xff", Cause: "bad luck", MinAttempts: 3, MaxAttempts: 2})
	require.ErrorContains(t, err, `error text: "\xff" is not text`)
	require.ErrorContains(t, err, `cause: "bad luck" is not one of unknown, attempts, permanent, crash, unreadable, operator`)
	require.ErrorContains(t, err, "attempts: from 3 to 2 is no range")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	err = mistakes(admin.Filter{Topic: "\xff", Consumer: "a\x00", Target: admin.Queue("\xff"), From: at.Add(time.Second), Until: at})
	require.ErrorContains(t, err, `topic: "\xff" is not text`)
	require.ErrorContains(t, err, `consumer: "a\x00" is not text`)
	require.ErrorContains(t, err, "target: ")
	require.ErrorContains(t, err, "died: from 2026-01-02T03:04:06Z to 2026-01-02T03:04:05Z is no span of time")
	require.NoError(t, mistakes(admin.Filter{Target: b.target, Topic: "größer", Key: "\xff", From: at, Until: at}))
}

// Each way to die leaves its cause.
func TestCause_says_why_a_message_died(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("attempts", "orders", ""), draft("permanent", "orders", ""), draft("unreadable", "orders", ""), draft("crash", "orders", ""))
		b.append(draft("operator", "orders", ""))
		database.Exec(t, "UPDATE postbox_messages SET metadata = ? WHERE message_id = ?", []byte{0xff}, []byte("unreadable"))
		database.Exec(t, "UPDATE postbox_messages SET starts = 100 WHERE message_id = ?", []byte("crash"))
		for _, m := range b.messages(admin.Filter{}) {
			if m.MessageID == "operator" {
				require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: m.ID}, "why")))
			}
		}
		stop := b.drainWith(database.DB, newHandler(func(m *spool.Message) error {
			if m.MessageID == "permanent" {
				return postbox.Permanent(errBroker)
			}
			return errBroker
		}), func(*drain.Config) {})
		b.eventually(func() bool { return b.pending() == 0 }, "all are dead")
		stop()
		letters := b.list(admin.Filter{})
		require.Len(t, letters, 5)
		for _, letter := range letters {
			require.Equal(t, letter.MessageID, letter.Cause)
		}
	})
}
