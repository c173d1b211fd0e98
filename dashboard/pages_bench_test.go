package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// BenchmarkPages measures each page, and what is counted for operators and a scrape, with a long
// backlog, see [backlogRows]. Each page counts for itself, as if no other one had been looked at
// for a while. Run it alone: -benchtime=20x.
func BenchmarkPages(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, database *testdb.Database) {
		b.Helper()
		backlog := newBenchBacklog(b, database)
		board, err := dashboard.New(backlog.Admin, dashboard.Config{Authorise: dashboard.LoopbackOnly}, nil)
		require.NoError(b, err)
		for _, page := range longPages(b, backlog.Admin) {
			b.Run(page.name, func(b *testing.B) {
				backlog.timed(b, func() {
					board.Forget()
					openPage(b, board, page.address)
				})
			})
		}
		b.Run("queues", func(b *testing.B) {
			backlog.timed(b, func() {
				_, err := backlog.Admin.Queues(context.Background())
				require.NoError(b, err)
			})
		})
		b.Run("measure", func(b *testing.B) {
			ignore := instruments.RecorderFunc(func(*metrics.Instrument, float64, ...string) {})
			backlog.timed(b, func() { require.NoError(b, backlog.Admin.Measure(b.Context(), ignore)) })
		})
	})
}

func openPage(tb testing.TB, board *dashboard.Handler, address string) {
	tb.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/"+address, nil)
	r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:50000"
	w := httptest.NewRecorder()
	board.ServeHTTP(w, r)
	require.Equal(tb, http.StatusOK, w.Code, w.Body.String())
}
