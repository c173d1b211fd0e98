package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// No such request reaches the database, whose answer would depend on its kind.
func TestAdmin_tells_a_wrong_request_from_a_failure_of_the_database(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		ctx, a := t.Context(), b.admin
		for _, text := range []string{"a\x00", "a\xff"} {
			letters := func(f admin.Filter) error { _, _, err := a.DeadLetters(ctx, f); return err }
			for field, err := range map[string]error{
				"topic":      letters(admin.Filter{Topic: text}),
				"consumer":   letters(admin.Filter{Consumer: text}),
				"target":     letters(admin.Filter{Target: admin.Queue(text)}),
				"error text": letters(admin.Filter{ErrorText: text}),
			} {
				require.ErrorIs(t, err, admin.ErrInvalid, field)
				require.ErrorContains(t, err, field)
			}
			_, _, err := a.Messages(ctx, admin.Filter{Target: b.target, Topic: text})
			require.ErrorIs(t, err, admin.ErrInvalid)
			_, _, err = a.Messages(ctx, admin.Filter{Target: b.target, Status: admin.Done, Topic: text})
			require.ErrorIs(t, err, admin.ErrInvalid)
			for _, filter := range []admin.Filter{{Actor: text}, {Action: text}, {Target: admin.Outbox(text)}} {
				_, _, err = a.Audit(ctx, filter)
				require.ErrorIs(t, err, admin.ErrInvalid)
			}
			require.ErrorIs(t, a.Pause(ctx, admin.Filter{Target: b.target, Topic: text}), admin.ErrInvalid)
			require.ErrorIs(t, a.Pause(ctx, admin.Filter{Target: admin.Outbox(text), All: true}), admin.ErrNotFound)
		}
		require.ErrorIs(t, a.Pause(ctx, admin.Filter{Target: admin.Outbox(b.target.Name + " "), All: true}), admin.ErrNotFound)
		// MySQL and MariaDB would choose what has the name without the space.
		for _, filter := range []admin.Filter{{Topic: "orders "}, {Consumer: "billing "}} {
			_, err := a.Delete(ctx, filter)
			require.ErrorIs(t, err, admin.ErrInvalid)
		}
		_, err := a.Bury(ctx, admin.Filter{Target: b.target, Topic: "orders "}, "reason")
		require.ErrorIs(t, err, admin.ErrInvalid)
		_, _, err = a.Messages(ctx, admin.Filter{Target: b.target, Status: admin.Done, Topic: "orders "})
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.ErrorIs(t, errorOf(a.Resolve(ctx, admin.Filter{ID: 1}, " ")), admin.ErrInvalid)
		require.ErrorIs(t, errorOf(a.Reschedule(ctx, admin.Filter{Target: b.target, ID: 1}, time.UnixMicro(0))), admin.ErrInvalid)
		require.ErrorIs(t, a.Pause(ctx, admin.Filter{Target: b.target, Key: ""}), admin.ErrInvalid)
		require.Empty(t, b.deeds())
	})
}

func TestReplay_refuses_a_topic_that_no_message_can_have(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.history(b.outbox, 1, nil)
		for _, topic := range []string{"orders ", "a\x00", "a\xff", strings.Repeat("x", 256)} {
			_, err := b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{Topic: topic})
			require.ErrorIs(t, err, admin.ErrInvalid, "%.10q", topic)
		}
		require.Zero(t, b.pending())
	})
}
