package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What was forgotten is said, and not that an outbox without a name does not exist.
func TestTarget_that_was_forgotten_is_named_in_the_error(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	a, ctx := b.admin, t.Context()
	for _, target := range []admin.Target{{}, {Kind: "Queue", Name: "fraud"}, {Name: "outbox"}} {
		_, _, messagesErr := a.Messages(ctx, admin.Filter{Target: target})
		_, messageErr := a.Message(ctx, admin.Filter{Target: target, ID: 1})
		_, stuckErr := a.StuckKeys(ctx, admin.Filter{Target: target})
		_, pausedErr := a.Paused(ctx, target)
		_, _, lanesErr := a.Lanes(ctx, target)
		_, accountErr := a.Account(ctx, target)
		_, replayErr := a.Replay(ctx, admin.Filter{Target: target, All: true}, admin.Again{})
		_, settingsErr := a.ChangeSettings(ctx, target, func(*admin.Settings) error { return nil })
		for name, err := range map[string]error{
			"pause": a.Pause(ctx, admin.Filter{Target: target, All: true}), "pause topic": a.Pause(ctx, admin.Filter{Target: target, Topic: "orders"}),
			"resume key": a.Resume(ctx, admin.Filter{Target: target, Key: "a"}), "run": errorOf(a.Reschedule(ctx, admin.Filter{Target: target, ID: 1}, time.Time{})),
			"bury": errorOf(a.Bury(ctx, admin.Filter{Target: target, All: true}, "no")), "messages": messagesErr, "message": messageErr,
			"stuck": stuckErr, "paused": pausedErr, "lanes": lanesErr, "account": accountErr, "replay": replayErr, "settings": settingsErr,
		} {
			require.ErrorIs(t, err, admin.ErrInvalid, name)
			require.NotErrorIs(t, err, admin.ErrNotFound, name)
			if target == (admin.Target{}) {
				require.ErrorContains(t, err, "no target: ", name)
				require.ErrorContains(t, err, `target: it is missing: name one, such as Outbox("outbox")`, name)
			} else {
				require.ErrorContains(t, err, "target: its kind is not outbox, queue or inbox", name)
			}
		}
	}
	for _, target := range []admin.Target{{Kind: "Queue", Name: "fraud"}, {Name: "outbox"}} {
		require.ErrorIs(t, errorOf(a.Delete(ctx, admin.Filter{Target: target})), admin.ErrInvalid)
	}
	require.Empty(t, b.deeds())
}

// "no" is for letters that are not resolved, as the command line has it, and it is no condition.
func TestResolved_no_is_the_same_as_nothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(2)
	require.NoError(t, errorOf(b.admin.Resolve(t.Context(), admin.Filter{ID: b.list(admin.Filter{})[0].ID}, "paid")))
	require.Equal(t, b.list(admin.Filter{}), b.list(admin.Filter{Resolved: "no"}))
	require.ErrorContains(t, errorOf(b.admin.Delete(t.Context(), admin.Filter{Resolved: "no"})), "nothing is chosen")
	n, err := b.admin.Requeue(t.Context(), admin.Filter{Resolved: "no", Topic: "orders"}, admin.Again{})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, _, err = b.admin.DeadLetters(t.Context(), admin.Filter{Resolved: "No"})
	require.ErrorContains(t, err, `resolved: "No" is not one of "no", "yes" and "any"`)
}

// The error of Resume does not tell the caller to pause something.
func TestResume_does_not_speak_of_a_pause_that_nobody_asked_for(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	for _, filter := range []admin.Filter{
		{Target: b.target, Key: "a", Topic: "orders"},
		{Target: b.target, Key: "a", Limit: 1},
		{Target: b.target, All: true, Status: admin.Parked},
		{Target: admin.Queue("fraud"), Topic: "orders"},
		{Target: b.target},
	} {
		err := b.admin.Resume(t.Context(), filter)
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.NotRegexp(t, `\bpause\b`, err.Error())
	}
}

func TestChangeSettings_without_a_function_is_a_mistake(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	_, err := b.admin.ChangeSettings(t.Context(), b.target, nil)
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "the function is nil")
}

// A cursor belongs to the list that returned it: in another one it would begin anywhere.
func TestCursor_of_another_list_is_refused(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(3)
	b.append(numbered(3)...)
	b.history(b.outbox, 3, nil)
	for range 3 {
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, All: true}))
	}
	ctx, one := t.Context(), admin.Filter{Limit: 1}
	of := func(filter admin.Filter) admin.Filter {
		filter.Target = b.target
		return filter
	}
	lists := map[string]func(after string) (string, error){
		"letters": func(after string) (next string, err error) {
			filter := one
			filter.After = after
			_, next, err = b.admin.DeadLetters(ctx, filter)
			return next, err
		},
		"audit": func(after string) (next string, err error) {
			filter := one
			filter.After = after
			_, next, err = b.admin.Audit(ctx, filter)
			return next, err
		},
		"messages": func(after string) (next string, err error) {
			_, next, err = b.admin.Messages(ctx, of(admin.Filter{Limit: 1, After: after}))
			return next, err
		},
		"done": func(after string) (next string, err error) {
			_, next, err = b.admin.Messages(ctx, of(admin.Filter{Limit: 1, After: after, Status: admin.Done}))
			return next, err
		},
		"replay": func(after string) (string, error) {
			did, err := b.admin.Replay(ctx, of(admin.Filter{Topic: "none", Limit: 1, After: after}), admin.Again{})
			return did.Cursor, err
		},
		"receipts": func(after string) (string, error) {
			_, next, err := b.admin.Receipts(ctx, admin.Filter{After: after})
			return next, err
		},
	}
	cursors := map[string]string{"replay": "3-7-1-7", "receipts": "r1-7-ab"}
	for name, list := range lists {
		next, err := list("")
		require.NoError(t, err, name)
		if cursors[name] == "" {
			cursors[name] = next
		}
		require.NotEmpty(t, cursors[name], name)
		_, err = list(cursors[name])
		require.NoError(t, err, "%s goes on after %s", name, cursors[name])
	}
	for name, list := range lists {
		for other, cursor := range cursors {
			if other != name {
				_, err := list(cursor)
				require.ErrorIs(t, err, admin.ErrInvalid, "%s of %s in %s", cursor, other, name)
			}
		}
	}
}
