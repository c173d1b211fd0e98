package browser_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
)

// On a phone each row is a card with its error first, and nothing is beside the window.
func TestTables_are_cards_on_a_phone(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.window(narrow, light)
	for _, page := range []string{"letters", "groups", "keys"} {
		b.visit(page)
		require.True(t, evaluate[bool](b, `(row => {
			const top = cell => cell.getBoundingClientRect().top;
			const error = row.querySelector(".wide");
			return error !== null && [...row.cells].every(cell => cell === error || top(error) < top(cell));
		})(document.querySelector("main tbody tr"))`), "%s: the error is first", page)
		require.Empty(t, evaluate[[]string](b, outside(".scroll td, .scroll th")), page)
	}
	require.Contains(t, evaluate[string](b, `getComputedStyle(document.querySelector("main td.num"), "::before").content`), "Behind it", "a value has its name")
	b.window(wide, light)
	require.Equal(t, "table-row", evaluate[string](b, `getComputedStyle(document.querySelector("main tbody tr")).display`))
}

// An operator with a keyboard gets to what can be done with five keys.
func TestActions_are_five_tabs_away(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	for page, first := range map[string]string{
		"letters": "Requeue all…", "letter?id=1": "Requeue", "messages?outbox=outbox": "Run all now…", "message?outbox=outbox&id=3": "Run now", "": "See it",
	} {
		b.visit(page)
		b.press(kb.Tab)
		if page != "" {
			b.press(kb.Tab)
		}
		require.Contains(t, b.focused(), "Skip to the ", page)
		b.press(kb.Enter)
		for range 3 {
			if b.press(kb.Tab); b.focused() == first {
				break
			}
		}
		require.Equal(t, first, b.focused(), page)
		b.visit(page)
		if page != "" {
			b.press("a")
			require.Equal(t, first, b.focused(), "%s: the shortcut", page)
		}
	}
}

func TestShortcuts_find_go_and_explain_themselves(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.visit("letters")
	b.press("?")
	b.sees("the first action of the page")
	b.press(kb.Escape)
	require.False(t, evaluate[bool](b, `document.getElementById("shortcuts").open`))
	b.press("/")
	b.press("customer-14?")
	require.Contains(t, evaluate[string](b, `document.getElementById("find").value`), "customer-14?", "no shortcut within a field")
	b.visit("letters")
	b.press("m")
	b.sees("Messages of Outbox outbox")
}

// The command for the log of the incident is on each page, and goes into the clipboard.
func TestPages_have_the_command_that_shows_the_same(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	for page, want := range map[string]string{
		"": "doctor", "queue?outbox=outbox": "queues", "messages?in=queue:fraud+checks&status=RETRYING&key=it's": `messages list --queue 'fraud checks' --status RETRYING --key 'it'\''s'`,
		"messages?outbox=outbox&status=DONE": "messages list --outbox outbox --done", "message?outbox=outbox&id=3": "messages show 3 --outbox outbox",
		"letters?topic=orders.placed&resolved=any": "dead list --topic orders.placed --resolved any --newest-first", "letter?id=1": "dead show 1", "groups?consumer=billing": "dead groups --consumer billing",
		"find?text=customer-14": "find customer-14", "keys": "keys stuck", "processes": "lanes --members", "settings?outbox=outbox": "set --outbox outbox",
	} {
		b.visit(page)
		require.Equal(t, "postbox "+want, evaluate[string](b, `document.querySelector(".command .copy").textContent`), page)
	}
	b.visit("letter?id=1")
	evaluate[bool](b, `navigator.clipboard.writeText = async text => { window.copied = text }, true`)
	for selector, text := range map[string]string{".command button": "postbox dead show 1", "main dd button": "customer-14"} {
		b.do(chromedp.Click(chromedp.CSS(selector)))
		require.Equal(t, text, evaluate[string](b, `window.copied`))
	}
	b.sees("Copied")
}

// Each time says how long ago it was, and the switch to local time is remembered.
func TestTimes_are_shown_in_the_zone_of_the_reader(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	const shown = `document.querySelector("main time").textContent`
	b.visit("letters")
	utc := evaluate[string](b, shown)
	require.Regexp(t, `^\S+ · \d+ (s|min) ago$`, utc)
	b.do(chromedp.Click(chromedp.CSS("#local")))
	local := evaluate[string](b, shown)
	require.NotEqual(t, strings.Split(utc, " · ")[0], strings.Split(local, " · ")[0])
	require.Contains(t, b.text(), "Times of lists are local")
	b.visit("letters")
	require.Equal(t, strings.Split(local, " · ")[0], strings.Split(evaluate[string](b, shown), " · ")[0], "on the next page, too")
}

func TestTables_are_sorted_by_each_column(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.visit("letters")
	ids := func() []string {
		return evaluate[[]string](b, `[...document.querySelectorAll("main tbody th")].map(e => e.textContent.trim())`)
	}
	first := ids()
	b.do(chromedp.Click(chromedp.CSS("thead th:first-child button")))
	require.Equal(t, []string{"1", "2", "3"}, ids())
	b.do(chromedp.Click(chromedp.CSS("thead th:first-child button")))
	require.Equal(t, []string{"3", "2", "1"}, ids())
	require.ElementsMatch(t, first, ids())
	require.Equal(t, "descending", evaluate[string](b, `document.querySelector("thead th").ariaSort`))
}

// Forty outboxes fit on a screen or two: what is zero is left out, and a field narrows them down.
func TestOverview_of_forty_outboxes_is_narrowed_down(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	for i := range 40 {
		s.Database.Exec(t, "INSERT INTO postbox_spools (name) VALUES (?)", fmt.Sprintf("inbox queue %02d", i))
	}
	b := open(t, s.url)
	b.visit("")
	require.Less(t, evaluate[float64](b, `document.querySelector(".cards").getBoundingClientRect().height`), 2500.0)
	require.Equal(t, 40, evaluate[int](b, `document.querySelectorAll(".card").length`))
	b.do(chromedp.Focus(chromedp.CSS("#narrow")))
	b.press("queue 17")
	require.Equal(t, []string{"queue 17"}, evaluate[[]string](b, `[...document.querySelectorAll(".card h2 a")].filter(e => e.checkVisibility()).map(e => e.textContent)`))
}

// Zeros are grey, and what is not zero is not.
func TestOverview_has_grey_zeros(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.visit("")
	colours := evaluate[map[string]string](b, `Object.fromEntries([...document.querySelectorAll(".card:first-child dd")].map(e => [e.textContent.trim(), getComputedStyle(e.firstElementChild || e).color]))`)
	require.NotEqual(t, colours["61"], colours["0"])
	require.NotEmpty(t, colours["0"])
}

// From a letter to its outbox, its key and its message, and from what was corrected to the letter.
func TestLetters_lead_to_their_queue_key_and_corrected_message(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	_, err := s.Admin.Requeue(t.Context(), admin.Filter{ID: 1}, admin.Again{Payload: []byte(`{"order_id":78}`)})
	require.NoError(t, err)
	found, _, err := s.Admin.Messages(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), MessageID: "01a0-77"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	b := open(t, s.url)
	leads := func(page, text string) string {
		b.visit(page)
		return evaluate[string](b, fmt.Sprintf(`[...document.querySelectorAll("main a")].find(e => e.textContent === %q).getAttribute("href")`, text))
	}
	require.Equal(t, "queue?outbox=outbox", leads("letter?id=1", "outbox"))
	require.Equal(t, "find?text=customer-14", leads("letter?id=1", "customer-14"))
	require.Equal(t, "find?text=01a0-77", leads("letter?id=1", "01a0-77"))
	require.Equal(t, "find?text=request-5512", leads("message?outbox=outbox&id=3", "request-5512"))
	require.Equal(t, "letter?id=1", leads(fmt.Sprintf("message?outbox=outbox&id=%d", found[0].ID), "1"), "what was corrected")
}
