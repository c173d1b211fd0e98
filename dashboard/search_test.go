package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
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

// The same holds for dead letters and for the audit log.
func TestLetters_and_the_audit_log_are_searched_on(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Database.Exec(t, `
WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10101)
INSERT INTO postbox_dead_letters (origin, subject, error, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts)
SELECT 1, 's', 'no', 'billing', CASE n WHEN 1 THEN 'refunds' ELSE 'orders' END, 'id ' || n, '{}', '{}', 1, 2, 3 FROM r`)
	b.Database.Exec(t, `
WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10101)
INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
SELECT n, 1, CASE n WHEN 1 THEN 'anna' ELSE 'ben' END, 'requeue', '', '', '', 1, '' FROM r`)
	for _, test := range []struct{ page, filter, nothing, found string }{
		{"letters", "topic=refunds", "None of the 10,000 dead letters that this page has looked at matches the filter.", "refunds"},
		{"audit", "actor=anna", "None of the 10,000 actions that this page has looked at matches the filter.", "anna"},
	} {
		first := b.page(test.page + "?" + test.filter)
		require.Contains(t, first.text(), test.nothing)
		require.Contains(t, first.body, `data-live="`+test.page+`"`)
		second := b.page(b.linkTo(first, "Search on"))
		require.Len(t, b.column(second, 1), 1)
		require.Contains(t, second.text(), " "+test.found+" ")
		require.NotContains(t, second.body, `data-live="`+test.page+`"`, "a long search is not repeated each few seconds")
		require.NotContains(t, second.text(), "Search on")
		require.Contains(t, second.text(), "First page")
		require.Equal(t, http.StatusBadRequest, b.get(test.page+"?search=forever").status)
	}
	require.Contains(t, b.page("bulk?do=requeue&topic=refunds").text(), "1 dead letter matches this filter")
}
