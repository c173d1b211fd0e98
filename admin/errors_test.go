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
			letters := func(f admin.Filter) error { _, err := a.DeadLetters(ctx, f); return err }
			for field, err := range map[string]error{
				"topic":      letters(admin.Filter{Topic: text}),
				"consumer":   letters(admin.Filter{Consumer: text}),
				"target":     letters(admin.Filter{Target: admin.Queue(text)}),
				"error text": letters(admin.Filter{ErrorText: text}),
			} {
				require.ErrorIs(t, err, admin.ErrInvalid, field)
				require.ErrorContains(t, err, field)
			}
			_, err := a.Messages(ctx, admin.MessageFilter{Target: b.target, Topic: text})
			require.ErrorIs(t, err, admin.ErrInvalid)
			_, err = a.Done(ctx, b.target, admin.DoneFilter{Topic: text})
			require.ErrorIs(t, err, admin.ErrInvalid)
			for _, filter := range []admin.AuditFilter{{Actor: text}, {Action: text}, {Target: admin.Outbox(text)}} {
				_, err = a.Audit(ctx, filter)
				require.ErrorIs(t, err, admin.ErrInvalid)
			}
			require.ErrorIs(t, a.PauseTopic(ctx, b.target, text), admin.ErrInvalid)
			require.ErrorIs(t, a.Pause(ctx, admin.Outbox(text)), admin.ErrNotFound)
		}
		require.ErrorIs(t, a.Pause(ctx, admin.Outbox(b.target.Name()+" ")), admin.ErrNotFound)
		// MySQL and MariaDB would choose what has the name without the space.
		for _, filter := range []admin.Filter{{Topic: "orders "}, {Consumer: "billing "}} {
			_, err := a.DeleteAll(ctx, filter, nil)
			require.ErrorIs(t, err, admin.ErrInvalid)
		}
		_, err := a.BuryAll(ctx, admin.MessageFilter{Target: b.target, Topic: "orders "}, "reason", nil)
		require.ErrorIs(t, err, admin.ErrInvalid)
		_, err = a.Done(ctx, b.target, admin.DoneFilter{Topic: "orders "})
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.ErrorIs(t, a.Resolve(ctx, 1, " "), admin.ErrInvalid)
		require.ErrorIs(t, a.Reschedule(ctx, b.target, 1, time.Time{}), admin.ErrInvalid)
		require.ErrorIs(t, a.PauseKey(ctx, b.target, ""), admin.ErrInvalid)
		require.Empty(t, b.deeds())
	})
}

func TestReplay_refuses_a_topic_that_no_message_can_have(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.history(b.outbox, 1, nil)
		for _, topic := range []string{"orders ", "a\x00", "a\xff", strings.Repeat("x", 256)} {
			_, err := b.admin.Replay(t.Context(), b.target, admin.DoneFilter{}, admin.ReplayParams{Topic: topic}, nil)
			require.ErrorIs(t, err, admin.ErrInvalid, "%.10q", topic)
		}
		require.Zero(t, b.pending())
	})
}
