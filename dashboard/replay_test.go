package dashboard_test

import (
	"context"
	"database/sql/driver"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A mistake is answered before the page that shows the progress begins.
func TestReplay_with_a_mistake_says_at_once_what_to_do(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	outbox := admin.Outbox(dashboardtest.Outbox)
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	require.NoError(t, storeSettings(t.Context(), b.Admin, outbox, admin.Settings{History: time.Hour}))
	done := func() []admin.Message {
		found, _, err := b.Admin.Messages(t.Context(), admin.Filter{Target: outbox, Status: admin.Done})
		require.NoError(t, err)
		return found
	}
	b.Forward(func(*message.Message) error { return nil }, func() bool { return len(done()) == 1 })
	b.Enqueue("q-1", "customer-1", "{}")
	b.Receive("billing", "orders", dashboardtest.Message("r-1", "customer-1", "{}"))

	const ofOutbox, ofQueue, ofInbox = "outbox=outbox", "queue=fraud+checks", "inbox=billing"
	for want, wrong := range map[string]struct {
		of     string
		form   url.Values
		status int
	}{
		"is not a cursor of a replay: use one that a replay returned": {ofOutbox, url.Values{"after": {done()[0].Cursor}}, http.StatusBadRequest},
		"an inbox handles what a broker delivers: use an outbox":      {ofOutbox, url.Values{"to": {"inbox:billing"}}, http.StatusBadRequest},
		"use an outbox that publishes the messages, or a queue":       {ofInbox, url.Values{}, http.StatusBadRequest},
		`leave "again" out, or replay to an outbox`:                   {ofQueue, url.Values{"to-topic": {"again"}}, http.StatusBadRequest},
		`queue "fraud checks" is another queue: use an outbox`:        {"queue=other", url.Values{"to": {"queue:fraud checks"}}, http.StatusBadRequest},
		"the second time is before the first":                         {ofOutbox + "&done-after=2026-01-02T03:04&done-before=2026-01-01T03:04", url.Values{}, http.StatusBadRequest},
		`to: there is no outbox "nope": choose one from the list`:     {ofInbox, url.Values{"to": {"outbox:nope"}}, http.StatusBadRequest},
		`inbox "nope": not found: there are`:                          {"inbox=nope", url.Values{"to": {"outbox:outbox"}}, http.StatusNotFound},
	} {
		a := b.post("bulk-run?do=replay&status=DONE&"+wrong.of, wrong.form)
		require.Equal(t, wrong.status, a.status, a.text())
		require.Contains(t, a.text(), want)
	}
	require.Empty(t, b.messages(admin.Filter{}), "nothing was replayed")
}

// A replay that goes on from the wrong place copies messages a second time. If it is not known what
// was committed, the page names no place, but the audit log.
func TestReplay_of_which_the_last_part_is_unknown_points_to_the_audit_log(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database, dashboard.Config{})
	outbox := admin.Outbox(dashboardtest.Outbox)
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	require.NoError(t, storeSettings(t.Context(), b.Admin, outbox, admin.Settings{History: time.Hour}))
	b.Forward(func(*message.Message) error { return nil }, func() bool {
		found, _, err := b.Admin.Messages(t.Context(), admin.Filter{Target: outbox, Status: admin.Done})
		require.NoError(t, err)
		return len(found) == 1
	})

	db, gate := database.OpenGated(t)
	operator, err := admin.New(database.On(db), admin.Config{}, nil)
	require.NoError(t, err)
	b.board, err = dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly}, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	commits := 0
	gate.AtCommit(func(commit func() error) error {
		if commits++; commits == 1 { // of the row in the audit log
			return commit()
		}
		gate.Shut()
		stop() // it asks for a few seconds more
		return driver.ErrBadConn
	})
	a := b.serve(b.request(http.MethodPost, "bulk-run?do=replay&status=DONE&outbox=outbox", url.Values{}).WithContext(ctx))
	require.Contains(t, a.text(), "it is not known whether the last part was done, too")
	require.NotContains(t, a.text(), "start the action again")
	require.NotContains(t, a.text(), "go on with the rest")
	require.Equal(t, "audit", b.linkTo(a, "audit log"))
}
