package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A condition with a typing error would otherwise choose everything.
func TestPages_refuse_fields_that_they_do_not_know(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	for page, mistake := range map[string]string{
		"messages?outbox=outbox&topik=orders":            `"topik" is no field of this address, which may have `,
		"messages?outbox=outbox&topic=orders&topic=bank": "topic: it has several values",
		"messages?outbox=outbox&before=3":                `"before" is no field of this address`,
		"letters?eror=timeout":                           `"eror" is no field of this address`,
		"groups?eror=timeout":                            `"eror" is no field of this address`,
		"audit?aktor=anna":                               `"aktor" is no field of this address`,
		"overview?queue=orders&x=1":                      `"x" is no field of this address`,
		"keys?key=customer-1":                            `"key" is no field of this address`,
		"messages?outbox=outbox&done=1":                  `"done" is no field of this address`,
	} {
		a := b.get(page)
		require.Equal(t, http.StatusBadRequest, a.status, page)
		require.Contains(t, a.text(), mistake, page)
	}
	require.Equal(t, http.StatusBadRequest, b.post("pause-key?outbox=outbox&keys=customer-1", url.Values{"key": {"customer-1"}}).status)
	require.Equal(t, http.StatusOK, b.get("messages?in=outbox:outbox&status=&topic=&key=&message=&error=&min-attempts=").status, "an empty form")
	require.Equal(t, http.StatusOK, b.get("messages?outbox=outbox&done=buried").status, "where an action leads to")
	require.Equal(t, http.StatusNotFound, b.get("audit?queue=typo").status)
}
