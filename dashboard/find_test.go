package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each page has the box, and what is written there is found wherever it is.
func TestFind_tells_what_has_become_of_a_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Die("orders", "card declined", dashboardtest.Message("01a0-77", "customer-14", "{}"))
		b.Publish("orders", dashboardtest.Message("01a0-78", "customer-15", "{}"))
		b.Receive("billing", "orders", dashboardtest.Message("01a0-79", "customer-16", "{}"))
		for _, page := range []string{"", "messages", "letters", "letter?id=1", "find"} {
			require.Contains(t, b.page(page).body, `action="find"`, page)
		}
		for _, text := range []string{"01a0-77", "customer-14", "declined"} {
			dead := b.page("find?text=" + text)
			require.Contains(t, dead.text(), "became dead letter 1", text)
			require.Contains(t, dead.text(), "card declined")
			require.Equal(t, "letter?id=1", b.linkTo(dead, "Dead letter 1"))
			require.Contains(t, dead.body, `value="`+text+`"`, "the box keeps it")
		}
		waits := b.page("find?text=01a0-78")
		require.Contains(t, waits.text(), "is ready, and waits for its turn or the end of a pause")
		require.Equal(t, http.StatusOK, b.get(b.linkTo(waits, "Outbox outbox, message 2")).status)
		require.Contains(t, b.page("find?text=01a0-79").text(), `received and handled by the consumer "billing"`)
		none := b.page("find?text=nothing")
		require.Contains(t, none.text(), "There is no trace of nothing")
		require.Contains(t, none.text(), "These keep no history of what they have handled: Outbox outbox")
		require.Equal(t, "settings?outbox=outbox", b.linkTo(none, "keep one from now on…"))
		require.Equal(t, http.StatusOK, b.get("find?text="+url.QueryEscape(dashboardtest.Hostile)).status)
		require.Equal(t, http.StatusBadRequest, b.get("find?txt=1").status)
	})
}
