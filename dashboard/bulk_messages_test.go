package dashboard_test

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestBulk_of_messages_is_confirmed_and_changes_those_that_match(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{Authorise: as(dashboard.Access{Actor: "ada", Read: true, Act: true})})
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"), dashboardtest.Message("m-2", "customer-2", "{}"))
	b.Forward(func(*message.Message) error {
		return postbox.RetryAfter(errors.New("card terminal 7 is offline"), time.Hour)
	}, func() bool { return b.Count(admin.Retrying) == 2 })
	b.Publish("orders", dashboardtest.Message("m-3", "customer-3", "{}"))
	b.Publish("invoices", dashboardtest.Message("m-4", "customer-4", "{}"))

	list := b.page("messages?in=outbox%3Aoutbox&error=terminal+7&topic=orders")
	require.NotContains(t, list.text(), "m-3", "it has no error")
	confirm := b.page(b.linkTo(list, "Run all that match now…"))
	require.Contains(t, confirm.text(), "2 messages match this filter")
	require.Contains(t, confirm.text(), "Outbox outbox")
	require.Contains(t, confirm.text(), "Error contains terminal 7")
	require.Regexp(t, `aria-current="page">Messages<`, confirm.body)
	at := url.Values{"at": {"2031-05-06T07:08"}}
	query := "&outbox=outbox&error=terminal+7&topic=orders"
	require.Contains(t, b.post("bulk-run?do=reschedule"+query, at).text(), "Finished: 2 messages rescheduled.")
	due := b.messages(admin.Filter{Status: admin.Retrying})
	require.Len(t, due, 2)
	require.Equal(t, time.Date(2031, 5, 6, 7, 8, 0, 0, time.UTC), due[0].DueAt.UTC())
	require.Contains(t, b.post("bulk-run?do=run-now"+query, nil).text(), "Finished: 2 messages made due.")

	ready := b.page("messages?outbox=outbox&status=READY")
	require.NotContains(t, ready.text(), "Reschedule all", "they wait for nothing")
	require.Contains(t, b.page(b.linkTo(ready, "Bury all that match…")).text(), "2 messages match this filter")
	why := url.Values{"reason": {"a test"}}
	require.Contains(t, b.post("bulk-run?do=bury&outbox=outbox&topic=orders", why).text(), "Finished: 3 messages buried.")
	require.Len(t, b.letters(admin.Filter{}), 3)
	require.Len(t, b.messages(admin.Filter{}), 1)
	require.Contains(t, b.page("bulk?do=bury&outbox=outbox&topic=orders").text(), "No message matches the filter.")

	acts, _, err := b.Admin.Audit(t.Context(), admin.Filter{Actor: "ada"})
	require.NoError(t, err)
	require.Len(t, acts, 3)
	require.Equal(t, []any{"bury", `topic "orders"`, 3, "a test"}, []any{acts[0].Action, acts[0].Filter, acts[0].Affected, acts[0].Note})

	for name, bad := range map[string]answer{
		"no reason":      b.post("bulk-run?do=bury&outbox=outbox", nil),
		"no time":        b.post("bulk-run?do=reschedule&outbox=outbox", nil),
		"no target":      b.post("bulk-run?do=run-now", nil),
		"wrong attempts": b.post("bulk-run?do=run-now&outbox=outbox&min-attempts=x", nil),
		"wrong time":     b.get("bulk?do=bury&outbox=outbox&written-after=x"),
		"of the history": b.post("bulk-run?do=bury&outbox=outbox&done-after=2026-01-02T03:04", why),
		"ready":          b.get("bulk?do=run-now&outbox=outbox&status=READY"),
		"ready, by hand": b.post("bulk-run?do=run-now&outbox=outbox&status=READY", nil),
		"ready later":    b.get("bulk?do=reschedule&outbox=outbox&status=READY"),
		"wrong span":     b.get("bulk?do=bury&outbox=outbox&written-after=2026-01-02T03:04&written-before=2026-01-01T03:04"),
	} {
		require.Equal(t, http.StatusBadRequest, bad.status, name)
	}
	require.Equal(t, http.StatusNotFound, b.get("bulk?do=bury&outbox=nope").status)
	require.Len(t, b.messages(admin.Filter{}), 1)
}

func TestBulk_replays_messages_of_the_history(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	outbox := admin.Outbox(dashboardtest.Outbox)
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"), dashboardtest.Message("m-2", "customer-1", "{}"))
	b.Publish("invoices", dashboardtest.Message("m-3", "customer-1", "{}"))
	require.NoError(t, storeSettings(t.Context(), b.Admin, outbox, admin.Settings{History: time.Hour}))
	done := func() []admin.Message {
		found, _, err := b.Admin.Messages(t.Context(), admin.Filter{Target: outbox, Status: admin.Done})
		require.NoError(t, err)
		return found
	}
	b.Forward(func(*message.Message) error { return nil }, func() bool { return len(done()) == 3 })

	list := b.page("messages?outbox=outbox&status=DONE&topic=orders&done-before=2100-01-01T00:00")
	require.NotContains(t, list.text(), "Bury all", "they are done")
	confirm := b.page(b.linkTo(list, "Replay all that match…"))
	require.Contains(t, confirm.text(), "2 messages match this filter")
	require.Contains(t, confirm.text(), "Done before 2100-01-01T00:00")
	require.Contains(t, confirm.body, `<option value="outbox:outbox" selected>`)
	query := "bulk-run?do=replay&outbox=outbox&status=DONE&topic=orders"
	require.Contains(t, b.post(query, url.Values{"to": {"outbox:outbox"}, "to-topic": {"again"}, "new-ids": {"yes"}}).text(), "Finished: 2 messages replayed.")
	copies := b.messages(admin.Filter{})
	require.Len(t, copies, 2)
	for _, m := range copies {
		require.Equal(t, "again", m.Topic)
		require.NotContains(t, []string{"m-1", "m-2"}, m.MessageID)
	}

	// The cursor of the audit log goes on after the first two.
	acts, _, err := b.Admin.Audit(t.Context(), admin.Filter{Action: "replay"})
	require.NoError(t, err)
	cursor := acts[len(acts)-1].Note[len("up to cursor "):]
	require.Contains(t, b.page("bulk?do=replay&outbox=outbox&status=DONE&after="+cursor).body, `name="after" value="`+cursor+`"`)
	require.Contains(t, b.post("bulk-run?do=replay&outbox=outbox&status=DONE", url.Values{"after": {cursor}}).text(), "Finished: 1 message replayed.")

	for name, bad := range map[string]answer{
		"not the history": b.post("bulk-run?do=replay&outbox=outbox", nil),
		"no such field":   b.post(query+"&error=x", nil),
		"no such target":  b.post(query, url.Values{"to": {"nowhere"}}),
	} {
		require.Equal(t, http.StatusBadRequest, bad.status, name)
	}
	require.Len(t, b.messages(admin.Filter{}), 3)
}

// Messages that are written, or done, after the question are left alone.
func TestBulk_of_messages_leaves_alone_what_comes_after_the_question(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		until := func(page answer) url.Values {
			found := regexp.MustCompile(`name="until" value="([^"]+)"`).FindStringSubmatch(page.body)
			require.NotNil(t, found)
			return url.Values{"until": {found[1]}, "reason": {"test"}}
		}
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		question := b.page("bulk?do=bury&outbox=outbox&topic=orders")
		require.Contains(t, question.text(), "1 message matches this filter")
		b.Publish("orders", dashboardtest.Message("m-2", "customer-1", "{}"))
		database.Exec(t, "UPDATE postbox_messages SET created_at = created_at + 1000 WHERE message_id = ?", []byte("m-2")) // clocks may count milliseconds
		require.Contains(t, b.post("bulk-run?do=bury&outbox=outbox&topic=orders", until(question)).text(), "Finished: 1 message buried.")
		left := b.messages(admin.Filter{})
		require.Len(t, left, 1)
		require.Equal(t, "m-2", left[0].MessageID)
	})
}
