package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// received is a dashboard with the history of the inbox billing. Of the last message, the history
// has kept only a part.
func received(t *testing.T, database *testdb.Database, config dashboard.Config) *bench {
	t.Helper()
	b := newBench(t, database, config)
	b.Publish("other", dashboardtest.Message("m-1", "", "{}"))
	b.Enqueue("q-1", "customer-9", "{}")
	b.Receive("billing", "orders", dashboardtest.Message("r-1", "customer-1", `{"order":1}`), dashboardtest.Message("r-2", "customer-2", `{"order":2}`))
	b.Receive("billing", "invoices", dashboardtest.Message("r-3", "customer-1", strings.Repeat("x", 2000)))
	return b
}

func TestInbox_shows_what_it_has_received(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := received(t, database, reader())
		overview := b.page("")
		require.Contains(t, overview.text(), "Inbox billing 3 received")
		inbox := b.page(b.linkTo(overview, "billing"))
		require.Contains(t, inbox.text(), "In the history 3")
		require.Contains(t, inbox.text(), "Dead letters 0")
		require.Empty(t, b.linkTo(inbox, "Change the settings…"), "the user may only read")
		require.Contains(t, b.page(b.linkTo(inbox, "0")).text(), "No dead letter matches the filter.")

		list := b.page(b.linkTo(inbox, "3"))
		require.Contains(t, list.text(), "Messages of Inbox billing, the latest first")
		require.Equal(t, []string{"r-3", "r-2", "r-1"}, b.column(list, 4))
		require.NotContains(t, list.text(), "Replay all")
		require.Contains(t, list.body, `<option value="inbox:billing" selected>`)
		for filter, want := range map[string][]string{
			"key=customer-1": {"r-3", "r-1"}, "topic=orders": {"r-2", "r-1"}, "message=r-2": {"r-2"}, "status=READY&done-before=2100-01-01T00:00": {"r-3", "r-2", "r-1"},
		} {
			require.Equal(t, want, b.column(b.page("messages?in=inbox%3Abilling&"+filter), 4), filter)
		}
		require.Contains(t, b.page("messages?inbox=billing&key=nope").text(), "No message matches the filter.")

		_, rows, _ := strings.Cut(list.body, "<tbody>")
		part := b.page(b.links(answer{body: rows})[0])
		require.Contains(t, part.text(), "Inbox billing")
		require.Contains(t, part.text(), "The history has kept only a part of this message: 2.0 KiB were left out.")
		for _, page := range []string{"inbox?inbox=nope", "messages?inbox=nope"} {
			require.Equal(t, http.StatusNotFound, b.get(page).status, page)
		}
		for _, page := range []string{"inbox", "messages?inbox=billing&error=x", "messages?inbox=billing&status=READY", "messages?inbox=billing&status=ready", "messages?in=inbox%3Abilling&status=ready"} {
			require.Equal(t, http.StatusBadRequest, b.get(page).status, page)
		}
		require.Equal(t, http.StatusForbidden, b.post("bulk-run?do=replay&inbox=billing&status=DONE", url.Values{"to": {"outbox:outbox"}}).status)
		require.Equal(t, http.StatusForbidden, b.get("bulk?do=replay&inbox=billing&status=DONE").status)
	})
}

func TestInbox_is_replayed_after_a_preview(t *testing.T) {
	t.Parallel()
	b := received(t, testdb.SQLite(t), dashboard.Config{Authorise: as(dashboard.Access{Actor: "ada", Read: true, Act: true})})
	confirm := b.page(b.linkTo(b.page("messages?inbox=billing&key=customer-1"), "Replay all that match…"))
	require.Contains(t, confirm.text(), "2 messages match this filter")
	require.Contains(t, confirm.text(), "Inbox billing")
	require.Contains(t, confirm.body, `<option value="outbox:outbox">`)
	require.Contains(t, confirm.body, `<option value="queue:fraud checks">`)
	require.NotContains(t, confirm.body, `<option value="inbox:billing"`)
	const run = "bulk-run?do=replay&inbox=billing&status=DONE&key=customer-1"
	require.Contains(t, b.post(run, url.Values{"to": {"outbox:outbox"}, "to-topic": {"again"}, "new-ids": {"yes"}}).text(), "Finished: 1 message replayed.", "the other one is not whole")
	require.Len(t, b.messages(admin.Filter{Topic: "again"}), 1)
	require.Contains(t, b.post(run, url.Values{"to": {"queue:fraud checks"}}).text(), "Finished: 1 message replayed.")
	inQueue, _, err := b.Admin.Messages(t.Context(), admin.Filter{Target: admin.Queue(dashboardtest.Queue), MessageID: "r-1"})
	require.NoError(t, err)
	require.Len(t, inQueue, 1)

	audit := b.page("audit?in=inbox%3Abilling&actor=ada")
	require.Equal(t, []string{"replay", "replay"}, b.column(audit, 2))
	require.Contains(t, b.page(b.linkTo(audit, "Inbox billing")).text(), "received")
	for _, do := range []string{"bury", "run-now", "reschedule"} {
		a := b.post("bulk-run?inbox=billing&do="+do, url.Values{"reason": {"x"}, "at": {"2031-05-06T07:08"}})
		require.Equal(t, http.StatusBadRequest, a.status, do)
		require.Contains(t, a.text(), "choose the status DONE", do)
	}
}

func TestInbox_has_one_setting(t *testing.T) {
	t.Parallel()
	b := received(t, testdb.SQLite(t), dashboard.Config{})
	page := b.page(b.linkTo(b.page("inbox?inbox=billing"), "Change the settings…"))
	form := fields(page)
	require.Len(t, form, 2, "history, and what the form showed")
	form.Set("history", "7d")
	form.Set("page-size", "500")
	require.Contains(t, b.do("settings-run?inbox=billing", form).text(), "Handled messages are kept for 7 d 0 h")
	queues, err := b.Admin.Queues(t.Context())
	require.NoError(t, err)
	require.Equal(t, admin.Settings{History: 7 * 24 * time.Hour}, queues[len(queues)-1].Settings)
	require.Equal(t, http.StatusNotFound, b.get("settings?inbox=nope").status)
}

// An inbox without a history has no card on the overview, and its dead letters need an operator all
// the same.
func TestOverview_names_inboxes_with_dead_letters(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.BuryInbox("d-1", "orders", "billing", "no such customer")
		b.BuryInbox("d-2", "orders", "billing", "no such customer")
		overview := b.page("")
		require.Contains(t, overview.text(), "Inbox billing has 2 dead letters, 2 in the last ten minutes. See them")
		require.NotContains(t, overview.text(), "Nothing needs attention")
		require.NotContains(t, overview.text(), "Inboxes with a history")
		require.Contains(t, overview.body, `href="groups?consumer=billing"`)
		require.Equal(t, http.StatusNotFound, b.get("inbox?inbox=billing").status, "there is no history to show")
	})
}
