package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// ask sends a request of this machine to a handler.
func ask(t *testing.T, handler http.Handler, method, path string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://localhost:8080"+path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:50000"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func TestSeveral_has_a_line_for_each_database_and_their_sum(t *testing.T) {
	t.Parallel()
	shop, billing := newBench(t, testdb.SQLite(t), dashboard.Config{}), newBench(t, testdb.SQLite(t), dashboard.Config{})
	shop.Publish("orders", dashboardtest.Message("m-1", "", "{}"), dashboardtest.Message("m-2", "", "{}"))
	billing.Publish("invoices", dashboardtest.Message("m-3", "", "{}"))
	billing.Die("invoices", "no such customer", dashboardtest.Message("d-1", "", "{}"))
	all, err := dashboard.Several(dashboard.Board{Name: "shop", Handler: shop.board}, dashboard.Board{Name: "billing", Handler: billing.board})
	require.NoError(t, err)

	page := ask(t, all, http.MethodGet, "/")
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.text(), "shop 2 ")
	require.Contains(t, page.text(), "billing 1 ")
	require.Contains(t, page.text(), "All together 3 ")
	require.Contains(t, page.text(), "billing: Outbox outbox has 1 dead letter, 1 in the last ten minutes. See them")
	require.Contains(t, page.body, `href="billing/groups?outbox=outbox"`)
	require.NotContains(t, page.body, `href="messages"`)

	below := ask(t, all, http.MethodGet, "/billing/")
	require.Contains(t, below.text(), "1 pending")
	require.Contains(t, below.body, `<a href="../">All databases</a>`)
	require.Contains(t, ask(t, all, http.MethodGet, "/billing/letters?outbox=outbox").text(), "no such customer")
	require.Equal(t, http.StatusOK, ask(t, all, http.MethodGet, "/dashboard.css").status)
	require.Equal(t, http.StatusNotFound, ask(t, all, http.MethodGet, "/letters").status)
	require.Equal(t, http.StatusNotFound, ask(t, all, http.MethodGet, "/other/letters").status)
	require.Equal(t, http.StatusMethodNotAllowed, ask(t, all, http.MethodPost, "/").status)
}

func TestSeveral_says_which_database_does_not_answer(t *testing.T) {
	t.Parallel()
	shop, billing := newBench(t, testdb.SQLite(t), dashboard.Config{}), newBench(t, testdb.SQLite(t), dashboard.Config{})
	all, err := dashboard.Several(dashboard.Board{Name: "shop", Handler: shop.board}, dashboard.Board{Name: "billing", Handler: billing.board})
	require.NoError(t, err)
	require.Contains(t, ask(t, all, http.MethodGet, "/").text(), "Nothing needs attention.")
	billing.restart(dashboard.Config{}) // a count is shown for a second
	all, err = dashboard.Several(dashboard.Board{Name: "shop", Handler: shop.board}, dashboard.Board{Name: "billing", Handler: billing.board})
	require.NoError(t, err)
	require.NoError(t, billing.Database.DB.Close())
	page := ask(t, all, http.MethodGet, "/")
	require.Equal(t, http.StatusOK, page.status)
	require.Contains(t, page.text(), "Database billing does not answer")
	require.Contains(t, page.text(), "All together, without 1 database 0 ")
}

func TestSeveral_shows_what_a_user_may_read(t *testing.T) {
	t.Parallel()
	stranger := as(dashboard.Access{Actor: "reader"})
	shop, billing := newBench(t, testdb.SQLite(t), reader()), newBench(t, testdb.SQLite(t), dashboard.Config{Authorise: stranger})
	billing.Publish("invoices", dashboardtest.Message("m-3", "", "{}"))
	all, err := dashboard.Several(dashboard.Board{Name: "billing", Handler: billing.board}, dashboard.Board{Name: "shop", Handler: shop.board})
	require.NoError(t, err)
	page := ask(t, all, http.MethodGet, "/")
	require.Equal(t, http.StatusOK, page.status)
	require.NotContains(t, page.text(), "billing")
	require.Contains(t, page.text(), "reader read only")
	require.Equal(t, http.StatusForbidden, ask(t, all, http.MethodGet, "/billing/").status)
	alone, err := dashboard.Several(dashboard.Board{Name: "billing", Handler: billing.board})
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, ask(t, alone, http.MethodGet, "/").status)
}

func TestSeveral_refuses_what_cannot_stand_in_an_address(t *testing.T) {
	t.Parallel()
	board := newBench(t, testdb.SQLite(t), dashboard.Config{}).board
	for problem, boards := range map[string][]dashboard.Board{
		"no Board":   nil,
		"no Handler": {{Name: "shop"}},
		"characters": {{Name: "a/b", Handler: board}},
		"two Boards": {{Name: "a", Handler: board}, {Name: "a", Handler: board}},
		"or a file":  {{Name: "dashboard.css", Handler: board}},
	} {
		_, err := dashboard.Several(boards...)
		require.ErrorContains(t, err, problem)
	}
}
