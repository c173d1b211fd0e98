package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	n, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
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

// Fields that apply to letters of inboxes alone stand only where there may be such letters.
func TestBulk_asks_for_what_applies_to_inboxes_only_with_letters_of_inboxes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.DieMany("orders", 2)
		b.BuryInbox("m-3", "invoices", "billing", "no such customer")
		for chosen, want := range map[string]bool{"": true, "&consumer=billing": true, "&topic=invoices": true, "&outbox=outbox": false, "&topic=orders": false} {
			a := b.page("bulk?do=requeue" + chosen)
			for _, field := range []string{"to-topic", "older-than-claims"} {
				require.Equal(t, want, strings.Contains(a.body, `name="`+field+`"`), "%s: %s", chosen, field)
			}
		}
		for _, letter := range b.letters(admin.Filter{}) {
			require.Equal(t, letter.Consumer != "", strings.Contains(b.page(letterAt("letter", letter.ID)).body, "older-than-claims"), letter.MessageID)
		}
	})
}

// The question has the exact number and three of the letters, and letters that die after it are
// left alone.
func TestBulk_asks_with_the_exact_number_and_examples(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.BuryInbox("m-1", "orders", "billing", "declined 1")
		b.BuryInbox("m-2", "orders", "billing", "declined 2")
		few := b.page("bulk?do=delete&topic=orders")
		require.Contains(t, few.text(), "2 dead letters match this filter")
		require.Contains(t, few.text(), "These 1 declined 1")
		for i := range 9 { // together 1,024
			database.Exec(t, `INSERT INTO postbox_dead_letters (origin, subject, consumer, topic, message_id, metadata, created_at, died_at, attempts, error)
				SELECT origin, subject, consumer, topic, message_id, metadata, created_at, died_at, attempts, error FROM postbox_dead_letters ORDER BY id`)
			require.Equal(t, 4<<i, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
		}
		many := b.page("bulk?do=delete&topic=orders")
		require.Contains(t, many.text(), "1,024 dead letters match this filter")
		require.Contains(t, many.text(), "Three of them 1 declined 1")
		require.Contains(t, many.text(), "Delete 1,024 dead letters")
		until := regexp.MustCompile(`name="until" value="([^"]+)"`).FindStringSubmatch(many.body)
		require.NotNil(t, until)
		b.BuryInbox("m-3", "orders", "billing", "declined 3")
		done := b.post("bulk-run?do=delete&topic=orders", url.Values{"until": {until[1]}})
		require.Equal(t, 1024, finished(t, done))
		left := b.letters(admin.Filter{})
		require.Len(t, left, 1, "it died after the question")
		require.Equal(t, "m-3", left[0].MessageID)
		require.Equal(t, http.StatusBadRequest, b.post("bulk-run?do=delete&topic=orders", url.Values{"until": {"soon"}}).status)
	})
}

// The form asks for what concerns messages of inboxes only if there are some.
func TestBulk_asks_for_a_topic_where_there_are_letters_of_inboxes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	asks := func(filter string) bool {
		page := b.page("bulk?do=requeue" + filter).body
		require.Equal(t, strings.Contains(page, `name="to-topic"`), strings.Contains(page, `name="older-than-claims"`))
		return strings.Contains(page, `name="to-topic"`)
	}
	b.DieMany("orders", 2)
	require.False(t, asks(""))
	require.False(t, asks("&outbox=outbox"))
	b.BuryInbox("m-1", "orders", "billing", "declined")
	require.True(t, asks(""))
	require.True(t, asks("&consumer=billing"))
	require.False(t, asks("&outbox=outbox"))
	b.Database.Exec(t, `INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, metadata, created_at, died_at, attempts, error)
		WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 11000)
		SELECT origin, subject, spool, consumer, topic, message_id, metadata, created_at, died_at, attempts, error FROM postbox_dead_letters, r WHERE id = 1`)
	require.True(t, asks("&topic=orders"), "there may be some among the rest")
	require.False(t, asks("&topic=orders&outbox=outbox"))
}

// A filter that the list knows and the action did not would change more than the operator saw.
func TestBulk_names_each_field_of_the_filter(t *testing.T) {
	t.Parallel()
	fields := dashboard.FilterFields()
	slices.Sort(fields)
	require.Equal(t, fields, dashboard.FilterNames())
}
