package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A page looks at 10,000 messages. A user who wants to see what is behind them says so.
func TestMessages_of_a_long_list_are_searched_on(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("o-1", "", "{}"))
	b.Database.Exec(t, `
WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10100)
INSERT INTO postbox_messages (spool, state, lane, available_at, created_at, topic, message_id, metadata, payload)
SELECT m.spool, 0, 0, 0, m.created_at, 'orders', 'an id', '{}', '{}' FROM postbox_messages m CROSS JOIN r`)
	b.Database.Exec(t, `
INSERT INTO postbox_messages (spool, state, lane, available_at, created_at, topic, message_id, metadata, payload)
SELECT spool, 0, 31, 0, created_at, 'refunds', 'r-1', '{}', '{}' FROM postbox_messages LIMIT 1`)

	first := b.page("messages?outbox=outbox&topic=refunds")
	require.Contains(t, first.text(), "None of the 10,000 messages that this page has looked at matches the filter.")
	require.Contains(t, first.body, `data-live="messages"`)
	second := b.page(b.linkTo(first, "Search on"))
	require.Equal(t, []string{"r-1"}, b.column(second, 4))
	require.NotContains(t, second.body, `data-live="messages"`, "a long search is not repeated each few seconds")
	require.NotContains(t, second.text(), "Search on")
	require.Contains(t, second.text(), "First page")

	require.Contains(t, b.page("bulk?do=bury&outbox=outbox&topic=refunds").text(), "1 message matches this filter")
	require.Equal(t, http.StatusBadRequest, b.get("messages?outbox=outbox&search=forever").status)
}
