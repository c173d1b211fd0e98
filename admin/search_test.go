package admin_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The list of names has what the counts have, and the inboxes with a history.
func TestTargets_names_outboxes_then_queues_then_inboxes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		none, err := b.admin.Targets(t.Context())
		require.NoError(t, err)
		require.Empty(t, none)
		for _, name := range []string{spool.QueuePrefix + "b", "z", spool.QueuePrefix + "a", "outbox"} {
			_, err := spool.New(b.statements, name).Open(t.Context(), database.DB)
			require.NoError(t, err)
		}
		b.received("1")
		targets, err := b.admin.Targets(t.Context())
		require.NoError(t, err)
		require.Equal(t, []admin.Target{admin.Outbox("outbox"), admin.Outbox("z"), admin.Queue("a"), admin.Queue("b"), inbox}, targets)
	})
}

// Those of a key are found by another index than the others.
func TestMessages_of_a_key_that_failed_are_listed_like_others(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "orders", "b"), draft("3", "orders", "a"), draft("4", "refunds", "a"), draft("5", "orders", "a"))
		b.exec(database.Bind("UPDATE postbox_messages SET state = 2, attempts = 3 WHERE message_id <> ?"), []byte("5"))
		b.exec(database.Bind("UPDATE postbox_messages SET available_at = available_at + ? WHERE message_id = ?"), int64(dialect.ParkDelay), []byte("3"))
		database.MoveWaiting(t)
		for _, test := range []struct {
			filter admin.Filter
			want   []string
		}{
			{admin.Filter{Key: "a", Status: admin.Retrying}, []string{"1", "4"}},
			{admin.Filter{Key: "a", Status: admin.Parked}, []string{"3"}},
			{admin.Filter{Key: "a", Status: admin.Retrying, Topic: "refunds"}, []string{"4"}},
			{admin.Filter{Key: "a", Status: admin.Retrying, Until: time.Unix(1, 0)}, nil},
			{admin.Filter{Key: "c", Status: admin.Retrying}, nil},
		} {
			for _, limit := range []int{1, 100} {
				var found []string
				for test.filter.After, test.filter.Limit = "", limit; ; {
					page, next := b.page(test.filter)
					for _, m := range page {
						found = append(found, m.MessageID)
					}
					if test.filter.After = next; next == "" {
						break
					}
				}
				require.Equal(t, test.want, found, "%+v", test.filter)
			}
		}
	})
}

func TestDeadLetters_newest_first_are_the_same_in_the_other_order(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"), draft("2", "refunds", "b"), draft("3", "orders", "c"), draft("4", "orders", "d"), draft("5", "refunds", "e"))
		b.bury()
		for _, filter := range []admin.Filter{{}, {Topic: "orders"}, {Target: b.target, ErrorText: "broker"}, {Topic: "none"}} {
			for _, limit := range []int{1, 2, 100} {
				listed := func(newest bool) (ids []int64) {
					filter.NewestFirst, filter.After, filter.Limit = newest, "", limit
					for {
						page, next, err := b.admin.DeadLetters(t.Context(), filter)
						require.NoError(t, err)
						require.LessOrEqual(t, len(page), limit)
						for _, letter := range page {
							ids = append(ids, letter.ID)
						}
						if filter.After = next; next == "" {
							return ids
						}
					}
				}
				newest := listed(true)
				slices.Reverse(newest)
				require.Equal(t, listed(false), newest, "%+v", filter)
				require.Equal(t, filter.Topic == "none", len(newest) == 0)
			}
		}
		_, err := b.admin.Requeue(t.Context(), admin.Filter{All: true, NewestFirst: true}, admin.Again{})
		require.ErrorContains(t, err, "newest first: it is for lists")
		_, _, err = b.admin.Messages(t.Context(), admin.Filter{Target: b.target, NewestFirst: true})
		require.ErrorContains(t, err, "newest first: it orders dead letters, and no pending messages")
		require.ErrorIs(t, err, admin.ErrInvalid)
	})
}

func TestDeadLetters_and_Audit_refuse_what_nothing_has(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	_, _, err := b.admin.DeadLetters(t.Context(), admin.Filter{Limit: 1001, MinAttempts: -1})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "limit: 1001 is above 1000")
	_, _, err = b.admin.DeadLetters(t.Context(), admin.Filter{Target: admin.Outbox("missing")})
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, _, err = b.admin.Audit(t.Context(), admin.Filter{After: "-1"})
	require.ErrorIs(t, err, admin.ErrInvalid)
	_, _, err = b.admin.Audit(t.Context(), admin.Filter{Target: admin.Outbox("missing")})
	require.ErrorIs(t, err, admin.ErrNotFound)
}

// A field that a list does not have is named, and nothing is done without a condition.
func TestFilter_refuses_what_has_no_meaning(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	ctx := t.Context()
	_, _, err := b.admin.Messages(ctx, admin.Filter{Target: b.target, Consumer: "billing", Cause: "crash"})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "consumer: it does not choose pending messages: leave it out")
	require.ErrorContains(t, err, "cause: it does not choose pending messages")
	_, _, err = b.admin.Messages(ctx, admin.Filter{Target: b.target, Status: admin.Done, ErrorText: "no"})
	require.ErrorContains(t, err, "error text: it does not choose messages of the history")
	_, _, err = b.admin.DeadLetters(ctx, admin.Filter{Status: admin.Parked, OlderThan: time.Hour})
	require.ErrorContains(t, err, "status: it does not choose dead letters")
	_, _, err = b.admin.Audit(ctx, admin.Filter{Topic: "orders"})
	require.ErrorContains(t, err, "topic: it does not choose entries of the audit log")
	_, err = b.admin.StuckKeys(ctx, admin.Filter{Target: b.target, Key: "a"})
	require.ErrorContains(t, err, "key: it does not choose stuck keys")

	for name, act := range map[string]func(admin.Filter) (int, error){
		"requeue": func(f admin.Filter) (int, error) { return b.admin.Requeue(ctx, f, admin.Again{}) },
		"resolve": func(f admin.Filter) (int, error) { return b.admin.Resolve(ctx, f, "why") },
		"delete":  func(f admin.Filter) (int, error) { return b.admin.Delete(ctx, f) },
	} {
		_, err := act(admin.Filter{})
		require.ErrorContains(t, err, "nothing is chosen", name)
		_, err = act(admin.Filter{ID: 1, Topic: "orders"})
		require.ErrorContains(t, err, "id: it chooses one of the dead letters", name)
		_, err = act(admin.Filter{All: true})
		require.NoError(t, err, name)
	}
	for name, act := range map[string]func(admin.Filter) (int, error){
		"run now":    func(f admin.Filter) (int, error) { return b.admin.Reschedule(ctx, f, time.Time{}) },
		"reschedule": func(f admin.Filter) (int, error) { return b.admin.Reschedule(ctx, f, time.Now()) },
		"bury":       func(f admin.Filter) (int, error) { return b.admin.Bury(ctx, f, "why") },
	} {
		_, err := act(admin.Filter{Target: b.target})
		require.ErrorContains(t, err, "nothing is chosen", name)
		_, err = act(admin.Filter{Target: b.target, Status: admin.Done})
		require.ErrorIs(t, err, admin.ErrInvalid, name)
		_, err = act(admin.Filter{Target: b.target, ID: 1, Key: "a"})
		require.ErrorContains(t, err, "id: it chooses one of the pending messages", name)
	}
	_, err = b.admin.Replay(ctx, admin.Filter{Target: b.target}, admin.Again{})
	require.ErrorContains(t, err, "nothing is chosen")
	for _, f := range []admin.Filter{{Target: b.target}, {Target: b.target, All: true, Key: "a"}, {Target: b.target, Key: "a", Topic: "orders"}, {Target: b.target, MessageID: "1"}} {
		require.ErrorIs(t, b.admin.Pause(ctx, f), admin.ErrInvalid)
		require.ErrorIs(t, b.admin.Resume(ctx, f), admin.ErrInvalid)
	}
	require.Equal(t, 1, b.pending())
}

// An outbox whose name is empty, as from a variable that is not set, is not all outboxes and
// queues, and dead letters that are resolved or not are not chosen by that.
func TestFilter_G9_is_not_wider_than_it_looks(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("1", "orders", "a"))
		ctx := t.Context()
		pending, _, err := b.admin.Messages(ctx, admin.Filter{Target: b.target})
		require.NoError(t, err)
		_, err = b.admin.Bury(ctx, admin.Filter{Target: b.target, ID: pending[0].ID}, "for the test")
		require.NoError(t, err)
		for name, act := range map[string]func(admin.Filter) (int, error){
			"requeue": func(f admin.Filter) (int, error) { return b.admin.Requeue(ctx, f, admin.Again{}) },
			"resolve": func(f admin.Filter) (int, error) { return b.admin.Resolve(ctx, f, "no") },
			"delete":  func(f admin.Filter) (int, error) { return b.admin.Delete(ctx, f) },
			"list": func(f admin.Filter) (int, error) {
				letters, _, err := b.admin.DeadLetters(ctx, f)
				return len(letters), err
			},
		} {
			did, err := act(admin.Filter{Target: admin.Outbox(""), Topic: "orders"})
			require.ErrorIs(t, err, admin.ErrInvalid, name)
			require.ErrorContains(t, err, "an outbox has a name", name)
			require.Zero(t, did)
			if name == "list" {
				continue
			}
			did, err = act(admin.Filter{Resolved: "any"})
			require.ErrorIs(t, err, admin.ErrInvalid, name)
			require.Zero(t, did)
		}
		require.NotEqual(t, admin.Target{}, admin.Outbox(""))
		require.Empty(t, admin.Outbox("").Name)
		require.Len(t, b.list(admin.Filter{}), 1)
	})
}
