package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// operator is somebody who begins at the overview and knows nothing. The tests of this file count
// what they click and enter, see docs/dev/operators.md.
type operator struct {
	*browser

	clicks int
}

func onCall(t *testing.T, s *shop) *operator {
	t.Helper()
	o := &operator{browser: open(t, s.url)}
	o.visit("")
	return o
}

func (o *operator) click(text string) {
	o.Helper()
	o.clicks++
	o.browser.click(text)
}

func (o *operator) unfold(text string) {
	o.Helper()
	o.clicks++
	o.browser.unfold(text)
}

// over ends the incident.
func (o *operator) over(most int) {
	o.Helper()
	o.Logf("%d clicks, of at most %d", o.clicks, most)
	require.LessOrEqual(o, o.clicks, most)
}

// publisher is a broker that does what the test says.
type publisher func(topic, id string) error

// Publish calls the function for each message.
func (p publisher) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := p(topic, msg.UUID); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (publisher) Close() error { return nil }

// relay runs a process that publishes what is in the outbox until the test ends.
func (s *shop) relay(publish publisher) {
	s.Helper()
	fwd, err := forwarder.New(s.Database.Postbox(), publish, forwarder.Config{Tuning: postbox.Tuning{Lease: time.Second}}, nil)
	require.NoError(s, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(s.Context())) }()
	s.Cleanup(func() {
		require.NoError(s, fwd.Close())
		require.NoError(s, <-ended)
	})
}

// empties waits until the outbox is empty.
func (s *shop) empties() {
	s.Helper()
	require.Eventually(s, func() bool { return s.Database.Count(s, "SELECT COUNT(*) FROM postbox_messages") == 0 }, patience, 100*time.Millisecond)
}

// A message that cannot be handled holds up 10,000 others of its key.
func TestIncident_a_poisoned_key(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	const behind = 10_000
	s.Publish("orders.placed", dashboardtest.Message("poison", "customer-12", `{"cents":-1}`))
	for range behind / 1000 {
		var all []*message.Message
		for range 1000 {
			all = append(all, dashboardtest.Message(postbox.NewMessageID(), "customer-12", "{}"))
		}
		s.Publish("orders.placed", all...)
	}
	var published atomic.Int64
	s.relay(func(_, id string) error {
		if id == "poison" {
			return postbox.RetryAfter(errors.New("the amount -1 is refused"), time.Hour)
		}
		published.Add(1)
		return nil
	})
	o := onCall(t, s)
	o.sees("Outbox outbox has 1 stuck key, the first for ")
	require.Contains(t, o.text(), "Later messages of a key wait behind the one that has failed: if that can be handled now, run it; if it never can, bury it.")
	o.click("See them")
	o.sees("customer-12")
	require.Contains(t, o.text(), "the amount -1 is refused")
	require.Contains(t, o.text(), "10,000 the message waits", "how many wait behind it")
	o.click("1")
	o.sees(`"cents": -1`)
	o.unfold("Bury")
	o.sees("The message becomes a dead letter, and its key goes on.")
	o.write("reason", "a negative amount")
	o.click("Bury the message")
	o.sees("The message is a dead letter now.")
	s.empties()
	require.Equal(t, int64(behind), published.Load())
	letters, _, err := s.Admin.DeadLetters(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, "poison", letters[0].MessageID, "it is kept, to be corrected")
	o.over(5)
}

// One cause, and forty topics that suffer from it.
func TestIncident_b_broker_away(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	for i := range 40 {
		topic := fmt.Sprintf("topic-%02d", i)
		s.Publish(topic, dashboardtest.Message(topic+"-1", topic, "{}"), dashboardtest.Message(topic+"-2", topic, "{}"))
	}
	var back atomic.Bool
	s.relay(func(string, string) error {
		if back.Load() {
			return nil
		}
		return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	})
	o := onCall(t, s)
	o.sees("Outbox outbox cannot reach the broker for 40 topics since ")
	o.sees("80 messages wait: none is lost.")
	o.sees("dial tcp: connection refused")
	require.Contains(t, o.text(), "It is tried again by itself")
	require.Equal(t, 1, evaluate[int](o.browser, `document.querySelectorAll(".needs li").length`), "no second symptom of it")
	o.click("See it")
	o.sees("The broker is away")
	require.Contains(t, o.text(), "Topic topic-39, since ")
	back.Store(true)
	s.empties()
	o.sees("0 pending")
	o.over(1)
}

// Messages for which no process runs.
func TestIncident_c_nobody_handles(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	for i := range 3 {
		s.Enqueue(fmt.Sprintf("m-%d", i), "", "{}")
	}
	o := onCall(t, s)
	said := "has 3 messages and no process that handles them. "
	advice := "Run a queue.Subscriber or a queue.Batch of this queue, or correct the name where messages are deferred."
	o.sees("Queue fraud checks " + said)
	require.Contains(t, o.text(), advice)
	o.click("See it")
	require.Contains(t, o.text(), said, "it leads to no dead end")
	require.Contains(t, o.text(), advice)
	require.Contains(t, o.text(), "postbox lanes --members --queue 'fraud checks'")
	o.over(1)
}

// 200 dead letters of a broken service, which are to be handled again, and 100 that never will be.
func TestIncident_d_two_kinds_of_errors(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	die := func(n int, text string) {
		var all []*message.Message
		for range n {
			all = append(all, dashboardtest.Message(postbox.NewMessageID(), "", "{}"))
		}
		s.Die("orders.placed", text, all...)
	}
	die(200, "bank: HTTP 503 Service Unavailable")
	die(100, "bank: HTTP 404 no such account")
	o := onCall(t, s)
	o.sees("Outbox outbox has 300 dead letters")
	o.click("See them")
	require.Contains(t, o.text(), "HTTP 503")
	require.Contains(t, o.text(), "HTTP 404", "the two kinds are told apart")
	o.click("Requeue…") // of the first group, the largest
	require.Contains(t, o.text(), "HTTP 503")
	require.NotContains(t, o.text(), "HTTP 404")
	o.click("Requeue 200 dead letters")
	o.sees("Finished: 200 dead letters requeued.")
	o.click("Resolve…")
	require.Contains(t, o.text(), "HTTP 404")
	o.write("reason", "the accounts are closed")
	o.click("Resolve 100 dead letters")
	o.sees("Finished: 100 dead letters resolved.")
	left, _, err := s.Admin.DeadLetters(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.Empty(t, left)
	require.Equal(t, 200, s.Database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	o.over(5)
}

// What became of a message of which only the id is known.
func TestIncident_e_what_became_of_it(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	s.fill()
	_, err := s.Admin.ChangeSettings(t.Context(), admin.Outbox("outbox"), func(stored *admin.Settings) error { stored.History = time.Hour; return nil })
	require.NoError(t, err)
	x := dashboardtest.Message("X", "customer-99", "{}")
	s.Publish("orders.placed", x)
	s.relay(func(string, string) error { return nil })
	require.Eventually(t, func() bool {
		return s.Database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ?", []byte("X")) == 1
	}, patience, 100*time.Millisecond)
	s.Receive("billing", "orders.placed", x)
	o := onCall(t, s)
	o.clicks += 2 // into the field, and the line with its end
	o.do(chromedp.Focus(chromedp.CSS("#find")))
	o.press("X")
	o.enter()
	o.sees(`written to the outbox "outbox"`)
	require.Contains(t, o.text(), "published by attempt 1, ")
	require.Contains(t, o.text(), `received and handled by the consumer "billing"`)
	o.over(2)
}

// The broker is to be replaced: nothing is published until an hour that is known before.
func TestIncident_f_pause_for_maintenance(t *testing.T) {
	t.Parallel()
	s := newShop(t, dashboard.Config{})
	var published atomic.Int64
	s.relay(func(string, string) error { published.Add(1); return nil })
	s.Publish("orders.placed", dashboardtest.Message("m-1", "", "{}"))
	s.empties()
	o := onCall(t, s)
	o.click("outbox")
	o.unfold("Pause")
	o.sees("Nothing is lost.")
	o.write("reason", "a new broker")
	o.write("until", "2099-05-06T04:00")
	o.click("Pause the outbox")
	o.sees("Paused. Processes notice within a second.")
	require.Contains(t, o.text(), "An operator paused it at ")
	require.Contains(t, o.text(), "2099-05-06 04:00")
	require.Contains(t, o.text(), "a new broker")
	o.over(3)

	o.visit("")
	o.sees("Outbox outbox has been paused since ")
	require.Contains(t, o.text(), "a new broker")
	// The pause ends at its hour, without a click.
	s.Database.Exec(t, "UPDATE postbox_spools SET pause_ends_at = 1")
	s.Publish("orders.placed", dashboardtest.Message("m-2", "", "{}"))
	s.empties()
	require.Equal(t, int64(2), published.Load())
}
