package admin_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
)

// The row of an action that was ended, such as by a page that was closed, must not look complete.
func TestBulk_says_in_the_audit_log_that_it_was_stopped(t *testing.T) {
	t.Parallel()
	eachBulkAction(t, func(b *bench, _ string, act bulkAction) {
		b.letters(250)
		ctx, stop := context.WithCancel(b.Context())
		_, err := act(ctx, b.admin, admin.Filter{}, func(admin.Progress) { stop() })
		require.ErrorIs(b, err, context.Canceled)
		entries, _, err := b.admin.Audit(b.Context(), admin.Filter{})
		require.NoError(b, err)
		require.Equal(b, 100, entries[0].Affected)
		require.Contains(b, entries[0].Note, "stopped before its end")

		_, err = act(b.Context(), b.admin, admin.Filter{}, nil)
		require.NoError(b, err)
		entries, _, err = b.admin.Audit(b.Context(), admin.Filter{})
		require.NoError(b, err)
		require.Equal(b, 150, entries[0].Affected)
		require.NotContains(b, entries[0].Note, "stopped")
	})
}

// A process is killed in the middle: its row says so, another one goes on, and the numbers of both
// are what was done.
func TestBulk_says_in_the_audit_log_that_its_process_was_killed(t *testing.T) {
	t.Parallel()
	eachBulkAction(t, func(b *bench, _ string, act bulkAction) {
		b.letters(250)
		func() {
			defer func() { require.Equal(b, "killed", recover()) }()
			_, _ = act(b.Context(), b.admin, admin.Filter{}, func(p admin.Progress) {
				if p.Done == 200 {
					panic("killed")
				}
			})
		}()
		entries, _, err := b.admin.Audit(b.Context(), admin.Filter{})
		require.NoError(b, err)
		require.Equal(b, 200, entries[0].Affected)
		require.Contains(b, entries[0].Note, "not finished, last progress at 2")

		_, err = act(b.Context(), b.operator(b.database), admin.Filter{}, nil)
		require.NoError(b, err)
		entries, _, err = b.admin.Audit(b.Context(), admin.Filter{})
		require.NoError(b, err)
		require.Len(b, entries, 2)
		require.Equal(b, 50, entries[0].Affected)
		require.NotContains(b, entries[0].Note, "finished")
		require.Contains(b, entries[1].Note, "not finished", "the other row is history")
	})
}
