package dashboard_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// gone begins a bulk action from a browser that goes away as soon as it has the first line.
func (b *bench) gone(run string) {
	b.Helper()
	server := httptest.NewServer(b.board)
	b.Cleanup(server.Close)
	ctx, leave := context.WithCancel(b.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/"+run, nil)
	require.NoError(b, err)
	a, err := server.Client().Do(r)
	require.NoError(b, err)
	_, err = io.ReadAtLeast(a.Body, make([]byte, 1<<10), 1)
	require.NoError(b, err)
	leave()
	require.NoError(b, a.Body.Close())
}

// A browser that goes away does not stop a bulk action.
func TestBulk_goes_on_without_a_browser(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 150)
		b.gone("bulk-run?do=requeue&topic=orders")
		require.Eventually(t, func() bool { return len(b.letters(admin.Filter{Limit: 1000})) == 0 }, time.Minute, 10*time.Millisecond)
		require.Equal(t, 150, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
		require.Equal(t, 150, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "each once")
		require.NoError(t, b.board.Close())
		require.Equal(t, []string{"150"}, b.column(b.page("audit"), 5))
		require.NotContains(t, b.page("audit").text(), "not finished")
		require.Equal(t, http.StatusBadRequest, b.post("bulk-run?do=requeue&topic=orders", nil).status, "it stops")
	})
}

// The handler is closed in the middle, and another one goes on: each letter is requeued once, and
// the rows of both add up.
func TestBulk_is_stopped_and_another_dashboard_goes_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 150)
		b.gone("bulk-run?do=requeue&topic=orders")
		require.NoError(t, b.board.Close())
		left := len(b.letters(admin.Filter{Limit: 1000}))
		b.restart(dashboard.Config{})
		require.Equal(t, left, finished(t, b.post("bulk-run?do=requeue&topic=orders", url.Values{})))
		require.Equal(t, 150, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
		require.Equal(t, 150, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "each once")
		require.Equal(t, 150, database.Count(t, "SELECT SUM(affected) FROM postbox_audit WHERE action = 'requeue'"))
		require.Contains(t, b.do("bulk-stop?id=1", nil).text(), "Audit log", "it has ended")
	})
}

// The row of a stopped action in the audit log leads to what is left: the same filter, and how many
// match it.
func TestBulk_is_resumed_from_the_audit_log(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 150)
		b.BuryInbox("m-3", "invoices", "billing", "no such customer")
		ctx, stop := context.WithCancel(b.Context())
		_, err := b.Admin.Requeue(ctx, admin.Filter{Topic: "orders", MaxAttempts: 9}, admin.Again{}, func(admin.Progress) { stop() })
		require.ErrorIs(t, err, context.Canceled)
		b.DieMany("orders", 1)

		resume := b.page(b.linkTo(b.page("audit"), "Resume…"))
		require.Contains(t, resume.text(), "50 dead letters match this filter")
		require.Contains(t, resume.text(), "Topic orders Attempts, at most 9 Died before")
		done := b.post(b.actionOf(resume), nil)
		require.Equal(t, 50, finished(t, done))
		require.Len(t, b.letters(admin.Filter{Topic: "orders"}), 1, "it died later")
		b.restart(reader())
		require.NotContains(t, b.page("audit").text(), "Resume…")
	})
}

// actionOf is the address of the form of a question.
func (b *bench) actionOf(a answer) string {
	b.Helper()
	found := regexp.MustCompile(`action="(bulk-run[^"]*)"`).FindStringSubmatch(a.body)
	require.NotNil(b, found, a.text())
	return html.UnescapeString(found[1])
}

// Messages are chosen by other fields.
func TestBulk_of_messages_is_resumed_from_the_audit_log(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		for i := range 120 {
			b.Publish("orders", keyed(fmt.Sprint(i), "customer-1"))
		}
		ctx, stop := context.WithCancel(b.Context())
		_, err := b.Admin.Bury(ctx, admin.Filter{Target: admin.Outbox("outbox"), Topic: "orders", Status: admin.Ready}, "a test", func(admin.Progress) { stop() })
		require.ErrorIs(t, err, context.Canceled)
		b.Publish("orders", keyed("later", "customer-1"))
		resume := b.page(b.linkTo(b.page("audit"), "Resume…"))
		require.Contains(t, resume.text(), "20 messages match this filter")
		require.Contains(t, b.post(b.actionOf(resume), url.Values{"reason": {"a test"}}).text(), "Finished: 20 messages buried")
		require.Len(t, b.messages(admin.Filter{}), 1)
	})
}

// slowLogger holds up an action that has deleted its letters.
type slowLogger struct {
	watermill.NopLogger

	release chan struct{}
	held    chan struct{} // with room for one
}

func (l slowLogger) Info(msg string, _ watermill.LogFields) {
	if strings.Contains(msg, "deleted dead letters") {
		select {
		case l.held <- struct{}{}:
		default:
		}
		<-l.release
	}
}

// watchedWriter tells that a page has begun.
type watchedWriter struct {
	*httptest.ResponseRecorder

	wrote chan struct{}
}

func (w watchedWriter) Write(content []byte) (int, error) {
	select {
	case w.wrote <- struct{}{}:
	default:
	}
	return w.ResponseRecorder.Write(content)
}

// A progress page that was closed is opened again from the audit log, while the action runs.
func TestBulk_a_closed_page_is_opened_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 150)
		slow := slowLogger{release: make(chan struct{})}
		release := sync.OnceFunc(func() { close(slow.release) })
		defer release()
		var err error
		b.Admin, err = admin.New(database.Postbox(), admin.Config{}, slow)
		require.NoError(t, err)
		b.restart(dashboard.Config{})
		b.gone("bulk-run?do=delete&topic=orders")
		page := b.page("audit")
		require.Contains(t, page.text(), "Delete dead letters: ")
		again := b.linkTo(page, "See how far it is")
		opened := watchedWriter{httptest.NewRecorder(), make(chan struct{}, 1)}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.board.ServeHTTP(opened, b.request(http.MethodGet, again, nil))
		}()
		<-opened.wrote // the action that is shown has not ended
		release()
		<-ended
		require.Equal(t, 150, finished(t, answer{opened.Code, opened.Header(), opened.Body.String()}))
		eventually(t, func() bool { return b.get(again).status == http.StatusNotFound })
		require.NotContains(t, b.page("audit").text(), "See how far it is")
	})
}

// goneWriter is of a browser that takes no more.
type goneWriter struct{ *httptest.ResponseRecorder }

func (goneWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A stopped action runs until its transaction has ended, and is told of so long. Its page ends
// before it if the browser has gone.
func TestBulk_a_stopped_action_is_told_of_until_it_has_ended(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.DieMany("orders", 150)
	slow := slowLogger{release: make(chan struct{}), held: make(chan struct{}, 1)}
	release := sync.OnceFunc(func() { close(slow.release) })
	defer release()
	var err error
	b.Admin, err = admin.New(b.Database.Postbox(), admin.Config{}, slow)
	require.NoError(t, err)
	b.restart(dashboard.Config{})
	b.gone("bulk-run?do=delete&topic=orders")
	again := b.linkTo(b.page("audit"), "See how far it is")
	<-slow.held // one that has deleted nothing yet would end at once
	stopped := b.do(strings.Replace(again, "bulk-progress", "bulk-stop", 1), nil)
	require.Contains(t, stopped.text(), "See how far it is")

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.board.ServeHTTP(goneWriter{httptest.NewRecorder()}, b.request(http.MethodGet, again, nil))
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		require.Fail(t, "the page of a browser that has gone does not end")
	}
	release()
	eventually(t, func() bool { return b.get(again).status == http.StatusNotFound })
}
