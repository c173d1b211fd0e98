package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestOverview_shows_each_outbox_and_queue_and_what_needs_attention(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		require.Contains(t, b.page("").text(), "There is no outbox and no queue yet")
		b.restart(dashboard.Config{}) // a count is shown for a second

		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"), dashboardtest.Message("m-2", "customer-1", "{}"))
		b.Enqueue("q-1", "customer-1", "{}")
		b.Die("invoices", "no such customer", dashboardtest.Message("d-1", "", "{}"))
		require.NoError(t, b.Admin.Pause(t.Context(), admin.Filter{Target: admin.Queue(dashboardtest.Queue), All: true}))

		text := b.page("").text()
		require.Contains(t, text, "Outbox outbox")
		require.Contains(t, text, "2 pending")
		require.Contains(t, text, "Queue fraud checks")
		require.Contains(t, text, "Outbox outbox has 2 messages and no process that handles them. See it")
		require.Contains(t, text, "Outbox outbox has 1 dead letter, 1 in the last ten minutes. See them")
		require.Contains(t, text, "Queue fraud checks has been paused since")
	})
}

func TestQueue_shows_an_outbox_and_pauses_and_resumes_it(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		require.NoError(t, storeSettings(t.Context(), b.Admin, admin.Outbox("outbox"), admin.Settings{Concurrency: 7, Attempts: -1}))

		text := b.page("queue?outbox=outbox").text()
		require.Contains(t, text, "Handlers at a time in each process 7")
		require.Contains(t, text, "Attempts no limit")

		paused := b.do("pause?outbox=outbox", nil)
		require.Contains(t, paused.text(), "Paused. Processes notice within a second.")
		require.Contains(t, paused.text(), "An operator paused it at")
		resumed := b.do("resume?outbox=outbox", nil)
		require.NotContains(t, resumed.text(), "An operator paused it at")

		missing := b.get("queue?queue=none")
		require.Equal(t, http.StatusNotFound, missing.status)
		require.Equal(t, http.StatusNotFound, b.post("pause?queue=none", nil).status)
	})
}

func TestQueue_shows_limits_and_where_they_come_from(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), reader())
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	require.NotContains(t, b.page("queue?outbox=outbox").text(), "Limits")
	beat := spool.Heartbeat{InFlight: map[string]int{}, Limits: postbox.Limits{
		Total: postbox.Limit{PerSecond: 50, MaxConcurrent: 40}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 2.5}},
	}}
	for holder, text := range map[string]string{"1": beat.Encode(), "2": "{}"} {
		b.Database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) SELECT id, ?, ?, ? FROM postbox_spools",
			holder, text, time.Now().Add(time.Hour).UnixMicro())
	}
	require.NoError(t, storeSettings(t.Context(), b.Admin, admin.Outbox("outbox"), admin.Settings{MaxConcurrent: -1}))
	b.restart(reader())
	page := b.page("queue?outbox=outbox").text()
	for _, part := range []string{
		"Limits, over all processes together", "Messages a second 50 (configured)", "Handlers at a time no limit (set by an operator)",
		"Messages a second, topic orders 2.5 (configured)", "Processes are configured with different limits.",
	} {
		require.Contains(t, page, part)
	}
}

func TestMessages_are_filtered_and_paged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		require.Contains(t, b.page("messages").text(), "There is no outbox, no queue, and no inbox with a history yet")
		b.restart(dashboard.Config{})
		for i := range 60 {
			b.Publish("orders", dashboardtest.Message(string(rune('a'+i%26))+"-"+string(rune('0'+i/26)), "customer-1", "{}"))
		}
		b.Publish("invoices", dashboardtest.Message("i-9", "customer-2", "{}"))
		b.Enqueue("q-1", "customer-1", "{}")

		seen := map[string]bool{}
		for page := "messages?in=outbox:outbox"; page != ""; page = b.linkTo(b.page(page), "Next page") {
			for _, row := range b.column(b.page(page), 4) {
				seen[row] = true
			}
		}
		require.Len(t, seen, 61)

		require.Equal(t, []string{"i-9"}, b.column(b.page("messages?outbox=outbox&topic=invoices"), 4))
		require.Equal(t, []string{"i-9"}, b.column(b.page("messages?outbox=outbox&key=customer-2&status=READY"), 4))
		require.Equal(t, []string{"q-1"}, b.column(b.page("messages?in="+url.QueryEscape("queue:fraud checks")), 4))
		require.Contains(t, b.page("messages?outbox=outbox&status=PARKED").text(), "No message matches the filter")
		require.Equal(t, http.StatusBadRequest, b.get("messages?outbox=outbox&status=BAD").status)
		require.Equal(t, http.StatusNotFound, b.get("messages?outbox=none").status)
	})
}

func TestMessage_shows_its_content_its_failures_and_what_it_waits_for(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		first := dashboardtest.Message("m-1", "customer-1", `{"order_id":123456789012345678901234567890,"sum":1.10}`)
		first.Metadata.Set(postbox.MetadataCorrelationID, "request-7")
		first.Metadata.Set(postbox.MetadataCausationPath, `["shop/order.placed","billing/invoice.sent"]`)
		b.Delay("orders", first)
		b.Publish("orders", dashboardtest.Message("m-2", "customer-1", "plain text\nof two lines"))
		require.NoError(t, b.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: "customer-1"}))

		text := b.page(messageAt("message", 1)).text()
		require.Contains(t, text, "RETRYING")
		require.Contains(t, text, `"order_id": 123456789012345678901234567890,`)
		require.Contains(t, text, `"sum": 1.10`)
		require.Contains(t, text, "card terminal 7 is offline")
		require.Contains(t, text, "Correlation id request-7")
		require.Contains(t, text, "shop handled order.placed billing handled invoice.sent")

		behind := b.page(messageAt("message", 2)).text()
		require.Contains(t, behind, "plain text of two lines")
		require.Contains(t, behind, "An earlier message of its key failed and waits for its next attempt")
		require.Contains(t, behind, "An operator paused its key at")
		require.Equal(t, http.StatusNotFound, b.get(messageAt("message", 99)).status)
		require.Equal(t, http.StatusBadRequest, b.get("message?outbox=outbox&id=x").status)
		require.Equal(t, http.StatusBadRequest, b.get("message?id=1").status)
	})
}

func TestMessage_is_run_now_rescheduled_and_buried(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))

		require.Contains(t, b.do(messageAt("reschedule", 1), url.Values{"at": {"2031-05-06T07:08"}}).text(), "2031-05-06 07:08:00")
		require.Equal(t, http.StatusBadRequest, b.post(messageAt("reschedule", 1), url.Values{"at": {"soon"}}).status)
		require.Equal(t, http.StatusBadRequest, b.post(messageAt("reschedule", 1), nil).status)
		require.Contains(t, b.do(messageAt("run-now", 1), nil).text(), "The message is due now.")
		require.Equal(t, http.StatusBadRequest, b.post(messageAt("bury", 1), nil).status, "a reason is required")
		require.Contains(t, b.do(messageAt("bury", 1), url.Values{"reason": {"a test order"}}).text(), "The message is a dead letter now.")
		require.Len(t, b.letters(admin.Filter{}), 1)
		require.Equal(t, http.StatusNotFound, b.post(messageAt("bury", 1), url.Values{"reason": {"again"}}).status)

		b.Publish("orders", dashboardtest.Message("m-2", "", "{}"))
		ready := b.post(messageAt("reschedule", 2), url.Values{"at": {"2031-05-06T07:08"}})
		require.Equal(t, http.StatusConflict, ready.status, ready.text())
	})
}

func TestLetters_begin_with_the_newest_and_can_be_turned_round(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	const more = 3 // than a page has
	for i := range 50 + more {
		b.BuryInbox(fmt.Sprintf("m-%d", i), "invoices", "billing", "no such customer")
	}
	first := b.page("letters?topic=invoices")
	require.Equal(t, "53", b.column(first, 0)[0])
	require.Contains(t, first.text(), "postbox dead list --topic invoices --newest-first")
	rest := b.column(b.page(b.linkTo(first, "Next page")), 0)
	require.Equal(t, []string{"3", "2", "1"}, rest)
	turned := b.page(b.linkTo(first, "turn round"))
	require.Equal(t, "1", b.column(turned, 0)[0])
	require.Equal(t, []string{"51", "52", "53"}, b.column(b.page(b.linkTo(turned, "Next page")), 0))
	require.Equal(t, "53", b.column(b.page(b.linkTo(turned, "turn round")), 0)[0])
}

func TestLetters_are_filtered_shown_and_dealt_with(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		require.Contains(t, b.page("letters").text(), "There is no dead letter.")
		b.Die("orders", "card declined", dashboardtest.Message("m-1", "customer-1", `{"a":1}`), dashboardtest.Message("m-2", "customer-2", "{}"))
		b.BuryInbox("m-3", "invoices", "billing", "no such customer")
		b.BuryInbox("m-4", "invoices", "billing", "no such customer")

		require.Len(t, b.column(b.page("letters"), 0), 4)
		require.Len(t, b.column(b.page("letters?topic=orders"), 0), 2)
		require.Len(t, b.column(b.page("letters?consumer=billing"), 0), 2)
		require.Len(t, b.column(b.page("letters?died-after=2020-01-01T00:00"), 0), 4)
		require.Contains(t, b.page("letters?died-before=2020-01-01T00:00").text(), "No dead letter matches the filter.")
		require.Equal(t, http.StatusBadRequest, b.get("letters?died-after=x").status)
		require.Equal(t, http.StatusBadRequest, b.get("letters?resolved=x").status)
		require.Equal(t, http.StatusBadRequest, b.get("letters?after=x").status)

		ids := b.letters(admin.Filter{Topic: "invoices"})
		letter := b.page(letterAt("letter", ids[0].ID)).text()
		require.Contains(t, letter, "no such customer")
		require.Contains(t, letter, "Consumer billing")
		require.Contains(t, letter, `"order": "m-3"`)
		require.Contains(t, letter, "Attempt 2")

		require.Equal(t, http.StatusBadRequest, b.post(letterAt("resolve", ids[0].ID), nil).status)
		b.do(letterAt("resolve", ids[0].ID), url.Values{"reason": {"paid by hand"}})
		require.Contains(t, b.page(letterAt("letter", ids[0].ID)).text(), "paid by hand")
		require.Equal(t, http.StatusConflict, b.post(letterAt("requeue", ids[0].ID), nil).status)
		require.Contains(t, b.do(letterAt("requeue", ids[1].ID), nil).text(), "is requeued")
		b.do(letterAt("delete", ids[0].ID), nil)
		require.Equal(t, http.StatusNotFound, b.get(letterAt("letter", ids[0].ID)).status)
		require.Len(t, b.letters(admin.Filter{Resolved: "any"}), 2)
	})
}

func TestKeys_are_paused_and_resumed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		paused := b.do("pause-key?outbox=outbox", url.Values{"key": {`customer-\xff`}})
		require.Contains(t, paused.text(), `customer-\xff`)
		keys, err := b.Admin.Paused(t.Context(), admin.Outbox("outbox"))
		require.NoError(t, err)
		require.Equal(t, "customer-\xff", keys[0].Key, "the notation is read back")
		require.Equal(t, http.StatusBadRequest, b.post("pause-key?outbox=outbox", nil).status)
		require.Contains(t, b.do("resume-key?outbox=outbox&key="+url.QueryEscape(`customer-\xff`), nil).text(), "No key is paused.")
	})
}
