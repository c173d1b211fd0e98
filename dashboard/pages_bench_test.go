package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// BenchmarkPages measures each page with a long backlog, see [dashboardtest.BacklogRows]. Each time is that of a dashboard that has counted nothing
// yet, so that no page uses what another one has counted. Run it alone: -benchtime=20x.
func BenchmarkPages(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) {
		b.Helper()
		backlog := dashboardtest.NewBacklog(b, database)
		letters, err := backlog.Admin.DeadLetters(b.Context(), admin.Filter{Limit: 1})
		require.NoError(b, err)
		messages, err := backlog.Admin.Messages(b.Context(), admin.MessageFilter{Target: admin.Outbox(dashboardtest.Outbox), Status: admin.Retrying, Limit: 1})
		require.NoError(b, err)
		for _, page := range []struct{ name, address string }{
			{"overview", "overview"},
			{"outbox", "queue?outbox=outbox"},
			{"messages", "messages?outbox=outbox"},
			{"messages-of-status", "messages?outbox=outbox&status=RETRYING"},
			{"messages-of-no-status", "messages?outbox=outbox&status=PARKED"},
			{"messages-of-topic", "messages?outbox=outbox&topic=other"},
			{"messages-of-key", "messages?outbox=outbox&key=other"},
			{"messages-of-id", "messages?outbox=outbox&message=other"},
			{"messages-of-error", "messages?outbox=outbox&error=other"},
			{"messages-of-attempts", "messages?outbox=outbox&min-attempts=7"},
			{"messages-of-time", "messages?outbox=outbox&written-before=2020-01-01T00:00"},
			{"messages-done", "messages?outbox=outbox&status=DONE"},
			{"message", messageAt("message", messages[0].ID)},
			{"letters", "letters"},
			{"letters-of-key", "letters?key=other"},
			{"letters-of-error", "letters?error=other"},
			{"groups", "groups"},
			{"letter", letterAt("letter", letters[0].ID)},
			{"keys", "keys"},
			{"processes", "processes"},
			{"audit", "audit"},
			{"audit-of-actor", "audit?actor=other"},
		} {
			b.Run(page.name, func(b *testing.B) {
				backlog.Timed(b, func() { openPage(b, backlog.Admin, page.address) })
			})
		}
	})
}

// openPage loads a page as the first one of a dashboard.
func openPage(b *testing.B, operator *admin.Admin, address string) {
	b.Helper()
	board, err := dashboard.New(operator, dashboard.Config{}, nil)
	require.NoError(b, err)
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/"+address, nil)
	r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:50000"
	w := httptest.NewRecorder()
	board.ServeHTTP(w, r)
	require.Equal(b, http.StatusOK, w.Code, w.Body.String())
}
