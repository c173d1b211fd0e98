package browser_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
)

// An operator works through an incident: each button is pressed once.
func TestActions_work_by_mouse(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)

	b.visit("")
	b.click("Resume it")
	b.sees("An operator paused it at")
	b.click("Resume")
	b.sees("Resumed. Processes notice within a second.")
	b.unfold("Pause")
	b.click("Pause the queue")
	b.sees("Paused. Processes notice within a second.")

	b.visit("message?outbox=outbox&id=3")
	b.sees("9007199254740993")
	b.unfold("Reschedule")
	b.write("at", "2031-05-06T07:08:09")
	b.click("Reschedule")
	b.sees("2031-05-06 07:08:09")
	b.click("Run now")
	b.sees("The message is due now.")
	b.click("Pause its key")
	b.sees("The key is paused.")
	b.click("Resume")
	b.sees("The key is resumed.")
	b.unfold("Pause a key")
	b.write("key", `customer-\xff`)
	b.click("Pause the key")
	b.sees(`customer-\xff`)
	b.visit("message?outbox=outbox&id=4")
	b.unfold("Bury")
	b.write("reason", "a test order")
	b.click("Bury the message")
	b.sees("The message is a dead letter now.")

	b.visit("keys?outbox=outbox")
	b.unfold("Pause a topic")
	b.write("topic", "invoices.sent")
	b.click("Pause the topic")
	b.sees("The topic is paused.")
	b.click("Resume")
	b.sees("The topic is resumed.")

	b.visit("letters?topic=orders.placed")
	b.click("2")
	b.sees("declined")
	b.unfold("Resolve")
	b.write("reason", "paid by hand")
	b.click("Resolve")
	b.sees("The dead letter is resolved.")
	b.visit("letter?id=2")
	b.unfold("Delete")
	b.click("Delete the dead letter")
	b.sees("The dead letter is deleted.")
	b.visit("letter?id=1")
	b.click("Requeue")
	b.sees("is requeued")
	s.Die("orders.placed", "declined", dashboardtest.Message("d-9", "", "{}"))
	b.visit("letters")
	b.click("Requeue all…")
	b.sees("will be requeued")
	b.click("Requeue 3 dead letters")
	b.sees("Finished: 3 dead letters requeued.")
	left, _, err := s.Admin.DeadLetters(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.Empty(t, left)
}

// What became of X: write it into the box of any page, and press Enter.
func TestFind_takes_one_line(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.visit("letters")
	b.do(chromedp.Focus(chromedp.CSS("input[name=text]")))
	b.press("01a0-77")
	b.enter()
	b.sees("became dead letter 1")
	b.click("Dead letter 1")
	b.sees("insufficient funds")
}

// Actions on all messages that match a filter, and the settings.
func TestActions_on_many_messages_work_by_mouse(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	outbox := admin.Outbox(dashboardtest.Outbox)
	b := open(t, s.url)

	b.visit("queue?outbox=outbox")
	b.click("Change the settings…")
	b.write("history", "1h")
	b.write("concurrency", "32")
	b.click("Store the settings")
	b.sees("The settings are stored.")
	b.sees("Handled messages are kept for 1 h 0 min")

	b.visit("messages?outbox=outbox&status=RETRYING")
	b.click("Reschedule all that match…")
	b.sees("1 message matches this filter.")
	b.write("at", "2031-05-06T07:08:09")
	b.click("Reschedule 1 message")
	b.sees("Finished: 1 message rescheduled.")
	b.click("Back to the messages")
	b.sees("2031-05-06 07:08:09")
	b.click("Run all that match now…")
	b.click("Run 1 message now")
	b.sees("Finished: 1 message made due.")
	b.visit("messages?outbox=outbox&topic=orders.placed&status=READY")
	b.click("Bury all that match…")
	b.sees("60 messages match this filter.")
	b.write("reason", "test orders")
	b.click("Bury 60 messages")
	b.sees("Finished: 60 messages buried.")

	done := func() int {
		found, _, err := s.Admin.Messages(t.Context(), admin.Filter{Target: outbox, Status: admin.Done})
		require.NoError(t, err)
		return len(found)
	}
	s.Forward(func(*message.Message) error { return nil }, func() bool { return done() == 2 })
	b.visit("messages?outbox=outbox&status=DONE&topic=invoices.sent")
	b.click("Replay all that match…")
	b.sees("1 message matches this filter.")
	b.window(narrow, dark)
	require.LessOrEqual(t, evaluate[float64](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`), 0.0)
	require.Empty(t, evaluate[[]string](b, accessibility))
	b.do(chromedp.Click(chromedp.CSS("main [name=new-ids]")))
	b.click("Replay 1 message")
	b.sees("Finished: 1 message replayed.")
	copies, _, err := s.Admin.Messages(t.Context(), admin.Filter{Target: outbox})
	require.NoError(t, err)
	require.Len(t, copies, 1)
	require.NotEqual(t, "01a0-201", copies[0].MessageID)
}

// No mouse: an operator finds the button with the tab key, and presses it.
func TestActions_work_by_keyboard_alone(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	b := open(t, s.url)
	b.visit("")
	b.press(kb.Tab)
	require.Equal(t, "Skip to the content", b.focused())
	require.True(t, evaluate[bool](b, `getComputedStyle(document.activeElement).outlineStyle !== "none"`), "the focus can be seen")
	b.press(kb.Enter)
	b.tabTo("Resume it")
	b.enter()
	b.tabTo("Resume")
	b.enter()
	b.sees("Resumed. Processes notice within a second.")
	b.tabTo("Pause")
	b.press(kb.Enter)
	b.tabTo("Pause the queue")
	b.enter()
	b.sees("Paused. Processes notice within a second.")

	b.visit("messages?outbox=outbox")
	b.tabTo("Topic")
	b.press("invoices.sent")
	b.enter()
	b.sees("01a0-201")
	require.NotContains(t, b.text(), "01a0-100")
	b.tabTo("Bury all that match…")
	b.enter()
	b.tabTo("Reason")
	b.press("a test invoice")
	b.tabTo("Bury 1 message")
	b.enter()
	b.sees("Finished: 1 message buried.")

	b.visit("settings?outbox=outbox")
	b.tabTo("Attempts")
	b.press("unlimited")
	b.enter()
	b.sees("The settings are stored.")
	b.sees("Attempts no limit")
}

// press types.
func (b *browser) press(keys string) {
	b.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// enter presses the key that leads to another page.
func (b *browser) enter() {
	b.Helper()
	_, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
	require.NoError(b, err)
	b.do(chromedp.WaitReady(footer))
}

// focused is the text of what has the focus, or the label of a field.
func (b *browser) focused() string {
	b.Helper()
	return evaluate[string](b, `(e => ((e.labels && e.labels.length ? e.labels[0] : e).textContent || "").trim())(document.activeElement)`)
}

// tabTo presses the tab key until the focus is there.
func (b *browser) tabTo(text string) {
	b.Helper()
	for range 80 {
		b.press(kb.Tab)
		if b.focused() == text {
			return
		}
	}
	require.Fail(b, "the tab key does not lead there", text)
}

func TestReader_sees_no_button(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{ReadOnly: true})
	s.fill()
	b := open(t, s.url)
	for name, address := range pages() {
		if name == "bulk" || name == "bury" || name == "settings" || name == "edit" || name == "problem" {
			continue
		}
		b.visit(address)
		require.Zero(t, evaluate[int](b, `document.querySelectorAll("main form[method=post], main details.act").length`), name)
		b.sees("read only")
	}
	b.visit("bulk?do=requeue")
	b.sees("You may look at this dashboard, and not do this.")
	require.Len(t, b.told(), 1, "the browser logs that the page has the status 403")
}

// A script of a producer does not run, on no page.
func TestHostile_names_and_contents_run_nowhere(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{Title: dashboardtest.Hostile})
	const topic = `<script>alert("topic")</script><img src=x onerror=alert(1)>`
	s.Die(topic, dashboardtest.Hostile, dashboardtest.Message("d-1", dashboardtest.Hostile, dashboardtest.Hostile))
	msg := dashboardtest.Message(dashboardtest.Hostile, dashboardtest.Hostile, dashboardtest.Hostile)
	msg.Metadata.Set(dashboardtest.Hostile, dashboardtest.Hostile)
	s.Delay(topic, msg)
	s.BuryInbox("d-2", topic, topic, dashboardtest.Hostile[:40])
	require.NoError(t, s.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox(dashboardtest.Outbox), Key: dashboardtest.Hostile}))
	b := open(t, s.url)
	for _, address := range []string{"", "queue?outbox=outbox", "messages", "message?outbox=outbox&id=2", "letters", "letter?id=1", "letter?id=2", "keys"} {
		b.visit(address)
		require.Contains(t, b.text(), "alert(", address)
		require.Zero(t, evaluate[int](b, `document.querySelectorAll("img, script:not([src]), [onerror], [style]").length`), address)
		for _, width := range []int64{wide, narrow} {
			b.window(width, light)
			require.LessOrEqual(t, evaluate[float64](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`), 0.0, "%s at %d", address, width)
		}
	}
	b.visit("keys")
	b.click("Resume")
	b.sees("The key is resumed.")
	b.sees("No key is paused.")
}

// A page that is open updates itself, unless the user pauses that or works with it. While the
// database is away it says so.
func TestPages_update_themselves(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{Refresh: time.Second, Timeout: 2 * time.Second})
	s.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	b := open(t, s.url)
	b.visit("")
	b.sees("1 pending")
	s.Publish("orders", dashboardtest.Message("m-2", "", "{}"))
	b.sees("2 pending")

	const toggle = chromedp.CSS("#live-toggle")
	b.do(chromedp.Click(toggle))
	b.sees("Updates are paused.")
	b.visit("messages?outbox=outbox")
	b.sees("Updates are paused.")
	b.visit("")
	b.do(chromedp.Click(toggle))
	b.sees("This page updates itself.")

	// A transaction that is open holds the only connection.
	tx, err := s.Database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	b.sees("Not updated: The database does not answer.")
	where := evaluate[string](b, `(() => {
		document.querySelector("main").style.minHeight = "300vh";
		scrollTo(0, 0);
		const said = document.getElementById("live-status").getBoundingClientRect();
		return said.height > 0 && said.top >= 0 && said.bottom <= innerHeight ? "in sight" : "out of sight";
	})()`)
	require.Equal(t, "in sight", where, "at the top of a long page")
	require.Contains(t, b.text(), "2 pending", "what was shown stays")
	b.visit("letters")
	b.sees("This page loads again by itself.")
	require.NoError(t, tx.Rollback())
	b.sees("There is no dead letter.")
	b.told() // the browser logs each answer with the status 503
}

// A field in which the user writes keeps its text and the focus.
func TestPages_do_not_disturb_a_form_in_use(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{Refresh: time.Second})
	s.fill()
	b := open(t, s.url)
	b.visit("keys")
	b.unfold("Pause a key")
	b.do(chromedp.Focus(chromedp.CSS("input[name=key]")))
	b.press("customer-1")
	before := evaluate[string](b, `document.querySelector("footer time").textContent`)
	require.Eventually(t, func() bool {
		return evaluate[string](b, `document.querySelector("footer time").textContent`) != before
	}, patience, 100*time.Millisecond, "the page updates itself")
	b.press("2")
	require.Equal(t, "customer-12", evaluate[string](b, `document.activeElement.value`))
	b.enter()
	b.sees("customer-12")
}
