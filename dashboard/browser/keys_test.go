package browser_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
)

// Nothing tells that a table scrolls, so at its usual width the page has all columns, and in a
// narrow window it has the buttons.
func TestKeys_have_all_columns_in_a_wide_window_and_the_buttons_in_a_narrow_one(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.Delay("orders.placed", dashboardtest.Message("01a0-90", "customer-12-of-a-tenant", "{}"))
	require.NoError(t, s.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox(dashboardtest.Outbox), Key: "customer-07-of-a-tenant"}))
	require.NoError(t, s.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox(dashboardtest.Outbox), Topic: "invoices.sent"}))
	b := open(t, s.url)
	b.visit("keys")
	b.window(wide, light)
	require.Equal(t, "RETRYING", evaluate[string](b, `document.querySelector(".scroll .badge").textContent`))
	require.Empty(t, evaluate[[]string](b, outside(`.scroll th, .scroll td`)), "at %d pixels", wide)
	b.window(narrow, light)
	require.Equal(t, 3, evaluate[int](b, `document.querySelectorAll(".scroll button").length`))
	require.Empty(t, evaluate[[]string](b, outside(`.scroll button`)), "at %d pixels", narrow)
}

// outside lists the elements in a box that scrolls which cannot be seen as a whole until it is
// scrolled.
func outside(selector string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%q)].filter(e =>
		e.getBoundingClientRect().right > e.closest(".scroll").getBoundingClientRect().right).map(e => e.textContent)`, selector)
}
