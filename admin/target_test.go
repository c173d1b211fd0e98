package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestTarget_that_does_not_exist_is_not_found_by_actions_on_dead_letters(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	ctx, gone := t.Context(), admin.Filter{Target: admin.Queue("nope")}
	_, requeueErr := b.admin.Requeue(ctx, gone, admin.Again{})
	_, resolveErr := b.admin.Resolve(ctx, gone, "paid")
	_, deleteErr := b.admin.Delete(ctx, gone)
	_, _, listErr := b.admin.DeadLetters(ctx, gone)
	_, _, groupErr := b.admin.Groups(ctx, gone)
	for _, err := range []error{requeueErr, resolveErr, deleteErr, listErr, groupErr} {
		require.ErrorIs(t, err, admin.ErrNotFound)
		require.ErrorContains(t, err, `queue "nope": not found: there are outbox`)
	}
	require.Empty(t, b.deeds(), "nothing was done")
}

// The names of queues in the database begin with "inbox ", so an outbox of such a name would be a
// queue.
func TestOutbox_does_not_stand_for_a_queue(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.append(draft("1", "orders", "a"))
	database.Exec(t, "UPDATE postbox_spools SET name = 'inbox fraud'")
	target := admin.Outbox("inbox fraud")
	require.Equal(t, "inbox fraud", target.Name)
	require.NotEqual(t, "queue", target.Kind)
	require.Equal(t, `outbox "inbox fraud"`, target.String())

	err := b.admin.Pause(t.Context(), admin.Filter{Target: target, All: true})
	require.ErrorIs(t, err, admin.ErrNotFound)
	require.ErrorContains(t, err, `outbox "inbox fraud": not found: there are queue "fraud"`)
	_, err = b.admin.Bury(t.Context(), admin.Filter{All: true, Target: target}, "no")
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, err = b.admin.Requeue(t.Context(), admin.Filter{Target: target}, admin.Again{})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "reserved for the queues of an inbox")
	_, err = admin.New(database.Postbox(), admin.Config{Outbox: "inbox fraud"}, nil)
	require.ErrorContains(t, err, "reserved for the queues of an inbox")
	require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: admin.Queue("fraud"), All: true}))
}
