package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// stuckBrowser reads nothing of an answer until it goes on.
type stuckBrowser struct {
	*httptest.ResponseRecorder

	writing *atomic.Int32
	goOn    chan struct{}
}

func (s stuckBrowser) Write(content []byte) (int, error) {
	s.writing.Add(1)
	<-s.goOn
	return s.ResponseRecorder.Write(content)
}

// Browsers that do not read used to keep a payload each in memory, without a bound.
func TestFiles_that_nobody_reads_are_few_and_pages_go_on(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{Timeout: 3 * time.Second})
	b.Die("orders", "no", dashboardtest.Message("m-1", "", "{}"))
	var writing, busy atomic.Int32
	var running sync.WaitGroup
	goOn := make(chan struct{})
	const browsers = 12
	for range browsers {
		running.Go(func() {
			w := stuckBrowser{httptest.NewRecorder(), &writing, goOn}
			r := b.request(http.MethodGet, letterAt("letter-payload", 1), nil)
			b.board.ServeHTTP(countedBrowser{w, &busy}, r)
		})
	}
	eventually(t, func() bool { return writing.Load()+busy.Load() == browsers })
	require.LessOrEqual(t, writing.Load(), int32(4), "in memory")
	require.Equal(t, http.StatusOK, b.get("letters").status)
	close(goOn)
	running.Wait()
}

// countedBrowser counts answers that say that the dashboard is busy, and lets browsers read these.
type countedBrowser struct {
	stuckBrowser

	busy *atomic.Int32
}

func (g countedBrowser) WriteHeader(status int) {
	g.stuckBrowser.WriteHeader(status)
	if status == http.StatusServiceUnavailable {
		g.busy.Add(1)
	}
}

func (g countedBrowser) Write(content []byte) (int, error) {
	if g.Code == http.StatusServiceUnavailable {
		return g.ResponseRecorder.Write(content)
	}
	return g.stuckBrowser.Write(content)
}

// Who has seen a payload as a whole is in the audit log, with the name that the authoriser gave.
func TestFiles_are_in_the_audit_log(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{Authorise: as(dashboard.Access{Actor: "anna", Read: true})})
		b.Die("orders", "no", dashboardtest.Message("m-1", "", "{}"))
		b.Delay("orders", dashboardtest.Message("m-2", "", "{}"))
		id := b.messages(admin.Filter{})[0].ID
		b.page(letterAt("letter-payload", 1))
		b.page(messageAt("message-payload", id))
		require.NotEqual(t, http.StatusOK, b.get(letterAt("letter-payload", 77)).status)
		entries, _, err := b.Admin.Audit(t.Context(), admin.Filter{Action: "download"})
		require.NoError(t, err)
		var seen []string
		for _, e := range entries {
			seen = append(seen, fmt.Sprintf("%s %s %s %d", e.Actor, e.Target, e.Subject, e.Affected))
		}
		require.Equal(t, []string{fmt.Sprintf(`anna outbox "outbox" message %d 1`, id), `anna outbox "outbox" dead letter 1 1`}, seen)
	})
}
