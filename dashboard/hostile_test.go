package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// textOnly is what a topic may be: PostgreSQL takes no NUL in a text, and no database takes bytes
// that are not UTF-8 there.
var textOnly = strings.NewReplacer("\x00", "", "\xff", "", "\xfe", "").Replace(dashboardtest.Hostile)

// What producers, handlers and other operators write cannot become a part of a page, and names of
// any bytes can be followed and acted on.
func TestPages_show_hostile_names_contents_and_errors_as_text(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{Title: dashboardtest.Hostile, Authorise: as(dashboard.Access{Actor: dashboardtest.Hostile, Read: true, Act: true})})
		msg := dashboardtest.Message(dashboardtest.Hostile, dashboardtest.Hostile, dashboardtest.Hostile)
		msg.Metadata.Set(dashboardtest.Hostile, dashboardtest.Hostile)
		msg.Metadata.Set("binary", "\xff\xfe\x00")
		msg.Metadata.Set(postbox.MetadataCausationPath, `["%3Cscript%3Ealert(1)%3C%2Fscript%3E/%3Cscript%3E"]`)
		b.Die(textOnly, dashboardtest.Hostile, dashboardtest.Message("d-1", dashboardtest.Hostile, dashboardtest.Hostile))
		b.Delay(textOnly, msg)
		b.BuryInbox("d-2", textOnly, textOnly, textOnly)
		require.NoError(t, b.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: dashboardtest.Hostile}))
		require.NoError(t, errorOf(b.Admin.Resolve(t.Context(), admin.Filter{ID: 2}, textOnly)))

		routes := b.board.Routes()
		seen := map[string]bool{}
		queue := []string{"", "letters?resolved=any", "messages?outbox=outbox&key=" + url.QueryEscape(dashboard.Escaped(dashboardtest.Hostile))}
		for len(queue) > 0 {
			page := queue[0]
			queue = queue[1:]
			a := b.get(page)
			if seen[page] || strings.Contains(a.header.Get("Content-Disposition"), "attachment") {
				continue
			}
			seen[page] = true
			require.Equal(t, http.StatusOK, a.status, "%s: %s", page, a.text())
			require.NotContains(t, a.body, "<script>alert", page)
			require.NotContains(t, a.body, "<img", page)
			require.NotContains(t, a.body, `href="javascript`, page)
			require.NotContains(t, a.body, "\u202e", page)
			require.True(t, utf8.ValidString(a.body), page)
			for _, found := range b.links(a) {
				name, _, _ := strings.Cut(found, "?")
				if changes, isRoute := routes[name]; changes || !isRoute && name != "./" {
					continue // an action, or a file that each page loads
				}
				queue = append(queue, strings.TrimPrefix(found, "./"))
			}
		}
		require.Greater(t, len(seen), 10, "links are followed")

		require.Len(t, b.column(b.page("messages?outbox=outbox&key="+url.QueryEscape(dashboard.Escaped(dashboardtest.Hostile))), 0), 1)
		resume := "resume-key?outbox=outbox&key=" + url.QueryEscape(dashboard.Escaped(dashboardtest.Hostile))
		require.Contains(t, b.page("keys").body, `action="resume-key?key=%3Cscript%3E`)
		require.Contains(t, b.do(resume, nil).text(), "No key is paused.")
	})
}

// Programs quote names in their errors, and that has made unprintable bytes visible already.
func TestPages_show_a_quoted_name_in_an_error_as_it_was_quoted(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Die("orders", fmt.Sprintf("publish to topic %q: \x1b away", "t\x1b[31m"), dashboardtest.Message("m-1", "", "{}"))
	for _, page := range []string{"letters", letterAt("letter", 1)} {
		require.Contains(t, b.page(page).text(), `publish to topic "t\x1b[31m": \x1b away`, page)
	}
	for address, mistake := range map[string]string{
		"messages?outbox=outbox&error=%00": `"\x00" is not text`, "messages?outbox=outbox&status=%1b": `there is no status "\x1b"`,
	} {
		a := b.get(address)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.text(), mistake)
	}
}

func TestMessage_with_a_payload_of_16_MiB_is_shown_in_part_and_downloaded_whole(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	large := strings.Repeat("payload ", 16<<17)
	b.Publish("orders", dashboardtest.Message("m-1", "", large), dashboardtest.Message("m-2", "", `"`+large[:2<<20]+`"`),
		dashboardtest.Message("m-3", "", strings.Repeat("\xff\x00", 8<<20)))
	for id := int64(1); id <= 3; id++ {
		page := b.page(messageAt("message", id))
		require.Less(t, len(page.body), 100<<10)
		require.Contains(t, page.text(), "Only the beginning is shown.")
	}
	require.Contains(t, b.page(messageAt("message", 3)).text(), "16.0 MiB, shown as hexadecimal")
	whole := b.page(messageAt("message-payload", 1))
	require.Len(t, whole.body, len(large))
	require.Equal(t, "application/octet-stream", whole.header.Get("Content-Type"))
	require.Contains(t, whole.header.Get("Content-Disposition"), "attachment")
	require.Contains(t, whole.header.Get("Content-Security-Policy"), "sandbox")
	require.Less(t, len(b.page("messages").body), 20<<10)
}

// A browser shows no blank at the end of a cell.
func TestMessage_shows_blanks_of_metadata_as_those_of_the_key(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1 ", "{}"))
	page := b.page(messageAt("message", 1))
	require.Contains(t, page.text(), `Key customer-1\x20`)
	require.Contains(t, b.column(page, 1), `customer-1\x20`)
}

func TestMessage_with_much_metadata_is_bounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	msg := dashboardtest.Message("m-1", "", "{}")
	for range 1000 {
		msg.Metadata.Set(postbox.NewMessageID(), strings.Repeat("x", 8<<10))
	}
	b.Publish("orders", msg)
	page := b.page(messageAt("message", 1))
	require.Less(t, len(page.body), 300<<10)
	require.Contains(t, page.text(), "900 more values not shown")
}

func TestFormatPayload_decides_what_is_shown(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{FormatPayload: func(p dashboard.PayloadParams) (string, bool) {
		switch string(p.Payload) {
		case "panic":
			panic("no such type")
		case "plain":
			return "", false
		}
		return "order of " + p.Topic + " for " + p.Access.Actor + " <b>", true
	}})
	b.Publish("orders", dashboardtest.Message("m-1", "", "secret card"), dashboardtest.Message("m-2", "", "panic"), dashboardtest.Message("m-3", "", "plain"))
	b.Die("orders", "x", dashboardtest.Message("m-4", "", "secret card"))

	for _, page := range []string{messageAt("message", 1), letterAt("letter", 1)} {
		formatted := b.page(page)
		require.Contains(t, formatted.text(), "order of orders for local user <b>")
		require.NotContains(t, formatted.body, "secret card")
		require.NotContains(t, formatted.body, "Download")
	}
	require.Equal(t, http.StatusBadRequest, b.get(messageAt("message-payload", 1)).status)
	require.Equal(t, http.StatusBadRequest, b.get(letterAt("letter-payload", 1)).status)
	require.Contains(t, b.page(messageAt("message", 2)).text(), "FormatPayload panicked")
	require.Equal(t, http.StatusBadRequest, b.get(messageAt("message-payload", 2)).status, "what a function hides stays hidden when it panics")
	require.Contains(t, b.page(messageAt("message", 3)).text(), "shown as text")
	require.Equal(t, "plain", b.page(messageAt("message-payload", 3)).body)
}

// A mistake in an address is not taken for a database that is away: the page would load again and
// again.
func TestPages_say_that_an_address_has_a_mistake(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		for _, address := range []string{
			"letters?topic=%ff", "letters?consumer=%00", "groups?topic=%ff", "letters?queue=%ff",
			"letters?died-after=2026-01-02T00:00&died-before=2026-01-01T00:00",
			"messages?outbox=outbox&topic=%ff", "messages?outbox=outbox&after=x", "messages?outbox=outbox&status=DONE&after=x", "audit?actor=%ff",
		} {
			require.Equal(t, http.StatusBadRequest, b.get(address).status, address)
		}
		for _, address := range []string{"messages?outbox=%ff", "keys?queue=%00", "queue?queue=%ff"} {
			require.Equal(t, http.StatusNotFound, b.get(address).status, address)
		}
		require.Equal(t, http.StatusNotFound, b.post("pause?queue=%ff", nil).status)
	})
}

// errorOf is the error of an action, whatever it has changed.
func errorOf(_ int, err error) error { return err }
