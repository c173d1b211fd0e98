package dashboard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestMessage_shows_the_unique_key_under_which_it_waits(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", postbox.SkipIfWaiting(dashboardtest.Message("m-1", "", "{}"), "statement of <7>"), dashboardtest.Message("m-2", "customer-1", "{}"))
	require.Contains(t, b.page(messageAt("message", 1)).body, `<dt>Unique key</dt><dd class="code">statement of &lt;7&gt;</dd>`)
	require.NotContains(t, b.page(messageAt("message", 2)).body, "Unique key")
}
