package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// finished is the number of dead letters that the last line of a bulk action names.
func finished(t *testing.T, a answer) int {
	t.Helper()
	found := regexp.MustCompile(`Finished: ([\d,]+) dead letter`).FindStringSubmatch(a.text())
	require.NotNil(t, found, a.text())
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

func TestBulk_is_confirmed_and_says_how_far_it_got(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 3)
		b.BuryInbox("m-3", "invoices", "billing", "no such customer")

		list := b.page("letters?topic=orders")
		confirm := b.page(b.linkTo(list, "Requeue all that match…"))
		require.Contains(t, confirm.text(), "3 dead letters match this filter")
		require.Contains(t, confirm.text(), "Topic orders")
		require.Len(t, b.letters(admin.Filter{}), 4, "a confirmation changes nothing")
		require.Contains(t, confirm.body, `action="bulk-run?do=requeue&amp;topic=orders"`)

		done := b.post("bulk-run?do=requeue&topic=orders", nil)
		require.Equal(t, 3, finished(t, done))
		require.Contains(t, done.text(), "Times are in UTC", "the page is complete")
		require.Len(t, b.letters(admin.Filter{}), 1)

		require.Equal(t, http.StatusBadRequest, b.get("bulk?do=burn").status)
		require.Equal(t, http.StatusBadRequest, b.post("bulk-run?do=burn", nil).status)
		for _, wrong := range []string{
			"died-after=x", "kee=customer-1", "after=1", "in=typo", "in=typo%3Aoutbox", "in=outbox%3Aoutbox&outbox=outbox", "outbox=outbox&queue=mail",
			"min-attempts=2147483648", "max-attempts=99999999999",
		} {
			require.Equal(t, http.StatusBadRequest, b.post("bulk-run?do=requeue&"+wrong, nil).status, wrong)
			require.Equal(t, http.StatusBadRequest, b.get("bulk?do=requeue&"+wrong).status, wrong)
		}
		for _, wrong := range []string{"letters?in=typo", "audit?in=typo", "messages?outbox=outbox&min-attempts=2147483648", "messages?outbox=outbox&queue=mail"} {
			require.Equal(t, http.StatusBadRequest, b.get(wrong).status, wrong)
		}
		require.Equal(t, http.StatusBadRequest, b.post("pause?outbox=outbox&queue=mail", nil).status)
		for run, form := range map[string]url.Values{ // conditions are in the address, once each
			"bulk-run?do=delete":                      {"topic": {"another"}},
			"bulk-run?do=delete&outbox=outbox":        {"reason": {"old"}, "outbox": {"mail"}},
			"bulk-run?do=delete&topic=a&topic=orders": nil,
		} {
			require.Equal(t, http.StatusBadRequest, b.post(run, form).status, run)
		}
		require.Len(t, b.letters(admin.Filter{}), 1)
	})
}

// A filter that the list knows and the action did not would change more than the operator saw.
func TestBulk_names_each_field_of_the_filter(t *testing.T) {
	t.Parallel()
	fields := dashboard.FilterFields()
	slices.Sort(fields)
	require.Equal(t, fields, dashboard.FilterNames())
}
