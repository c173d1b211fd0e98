package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// program is the browser.
func program(t *testing.T) string {
	t.Helper()
	return testservice.Program(t, "chromium", "chromium")
}

// shop is a database with messages of all kinds, and a dashboard on it.
type shop struct {
	*dashboardtest.Shop

	url string
}

const prefix = "/ops/postbox/"

func newShop(t *testing.T, config dashboard.Config) *shop {
	t.Helper()
	program(t)
	s := &shop{Shop: dashboardtest.New(t, testdb.SQLite(t))}
	s.serve(config)
	return s
}

// serve mounts another dashboard on the same database.
func (s *shop) serve(config dashboard.Config) {
	s.Helper()
	if config.Timeout == 0 {
		config.Timeout = patience // the machine may be busy
	}
	if config.Authorise == nil {
		config.Authorise = dashboard.LoopbackOnly
	}
	board, err := dashboard.New(s.Admin, config, nil)
	require.NoError(s, err)
	mux := http.NewServeMux()
	mux.Handle(prefix, http.StripPrefix(strings.TrimSuffix(prefix, "/"), board))
	server := httptest.NewServer(mux)
	s.Cleanup(server.Close)
	s.url = server.URL + prefix
}

// fill writes messages of all kinds: the first of the outbox has failed.
func (s *shop) fill() {
	s.Helper()
	s.Die("orders.placed", "card 4000 0012 declined: insufficient funds", dashboardtest.Message("01a0-77", "customer-14", `{"order_id":77,"cents":1990}`))
	s.Die("orders.placed", "card 4000 0044 declined: insufficient funds", dashboardtest.Message("01a0-78", "customer-15", `{"order_id":78,"cents":4990}`))
	first := dashboardtest.Message("01a0-90", "customer-12", `{"order_id":9007199254740993,"customer":"Zoë Müller","cents":12990,"lines":[{"sku":"tea","n":3},{"sku":"cup","n":1}],"paid":false}`)
	first.Metadata.Set(postbox.MetadataCorrelationID, "request-5512")
	first.Metadata.Set(postbox.MetadataCausationID, "01a0-66")
	first.Metadata.Set(postbox.MetadataCausationPath, `["shop/checkout.finished","orders/order.placed"]`)
	s.Delay("orders.placed", first)
	for i := range 60 {
		s.Publish("orders.placed", dashboardtest.Message(fmt.Sprintf("01a0-%d", 100+i), fmt.Sprintf("customer-%02d", i%20), fmt.Sprintf(`{"order_id":%d}`, 100+i)))
	}
	s.Publish("invoices.sent", dashboardtest.Message("01a0-201", "customer-12", "plain text of an invoice"))
	for i := range 5 {
		s.Enqueue(fmt.Sprintf("02b0-%d", i), fmt.Sprintf("customer-%02d", i), `{"score":17}`)
	}
	s.Receive("billing", "orders.placed", dashboardtest.Message("03c0-2", "customer-2", `{"order_id":76}`))
	s.BuryInbox("03c0-1", "orders.placed", "billing", "no account for customer 1")
	require.NoError(s, s.Admin.Pause(s.Context(), admin.Filter{Target: admin.Outbox(dashboardtest.Outbox), Key: "customer-07"}))
	require.NoError(s, s.Admin.Pause(s.Context(), admin.Filter{Target: admin.Queue(dashboardtest.Queue), All: true}))
}

// pages are all pages, by the name of their picture.
func pages() map[string]string {
	return map[string]string{
		"overview": "", "queue": "queue?outbox=outbox", "inbox": "inbox?inbox=billing", "messages": "messages?outbox=outbox", "message": "message?outbox=outbox&id=3",
		"letters": "letters", "letter": "letter?id=1", "keys": "keys", "groups": "groups", "find": "find?text=customer-14", "no-trace": "find?text=order-9", "processes": "processes", "audit": "audit", "edit": "edit?id=1", "bulk": "bulk?do=requeue&topic=orders.placed",
		"settings": "settings?outbox=outbox", "bury": "bulk?do=bury&outbox=outbox&topic=orders.placed",
		"problem": "message?outbox=outbox&id=999999",
	}
}
