package dashboard_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The row of an action that was stopped, or has died, tells how many it has left, as many as its
// question does: of dead letters and of messages, without those that came later.
func TestAudit_tells_how_many_an_action_has_left(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 130)
		stopped := func(act func(ctx context.Context, progress func(admin.Progress)) (int, error)) {
			ctx, stop := context.WithCancel(b.Context())
			_, err := act(ctx, func(admin.Progress) { stop() })
			require.ErrorIs(t, err, context.Canceled)
		}
		stopped(func(ctx context.Context, progress func(admin.Progress)) (int, error) {
			return b.Admin.Resolve(ctx, admin.Filter{Topic: "orders"}, "a test", progress)
		})
		b.DieMany("orders", 1)
		require.Contains(t, b.page("audit").text(), " 30 left.")
		for i := range 120 {
			b.Publish("invoices", keyed(fmt.Sprint(i), "customer-1"))
		}
		stopped(func(ctx context.Context, progress func(admin.Progress)) (int, error) {
			return b.Admin.Bury(ctx, admin.Filter{Target: admin.Outbox("outbox"), Topic: "invoices"}, "a test", progress)
		})
		b.Publish("invoices", keyed("later", "customer-1"))
		text := b.page("audit").text()
		require.Contains(t, text, " 30 left.")
		require.Contains(t, text, " 20 left.")

		b.post(b.actionOf(b.page(b.linkTo(b.page("audit?action=resolve"), "Resume…"))), map[string][]string{"reason": {"a test"}})
		require.NotContains(t, b.page("audit?action=resolve").text(), "left.")
	})
}
