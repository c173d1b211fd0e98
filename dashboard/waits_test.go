package dashboard_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestMessage_waits_for_the_end_of_an_outage(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		b.Forward(func(*message.Message) error { return fmt.Errorf("connect to broker 7: %w", syscall.ECONNREFUSED) },
			func() bool { return b.Count(admin.Retrying) > 0 })
		b.Publish("orders", dashboardtest.Message("m-2", "customer-1", "{}"), dashboardtest.Message("m-3", "customer-2", "{}"))
		b.Publish("invoices", dashboardtest.Message("m-4", "customer-1", "{}"), dashboardtest.Message("m-5", "customer-3", "{}"))
		since := time.Now().Add(-time.Minute)
		b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{"orders": since}})
		eventually(t, func() bool {
			m, err := b.Admin.Message(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), ID: 1})
			return err == nil && m.DueAt.Before(time.Now())
		})

		at := since.UTC().Format("2006-01-02 15:04:05")
		for id := range int64(3) {
			text := b.page(messageAt("message", id+1)).text()
			require.Contains(t, text, "The broker is away for its topic since "+at+" UTC. Message 1 failed first at ", "message %d", id+1)
			require.Contains(t, text, "connect to broker 7: connection refused", "message %d", id+1)
			require.Contains(t, text, "It is tried again by itself", "message %d", id+1)
			require.NotContains(t, text, "waits for its next attempt at", "that time is past")
		}
		require.Contains(t, b.page(messageAt("message", 2)).text(), "An earlier message of its key failed. Its next attempt has been due since ")
		require.Contains(t, b.page(messageAt("message", 4)).text(), "The broker is away for topic orders, to which an earlier message of its key goes since "+at)
		require.NotContains(t, b.page(messageAt("message", 5)).text(), "What it waits for")

		outbox := b.page(b.linkTo(b.page(""), "See it"))
		require.Contains(t, outbox.text(), "The broker is away Topic orders , since "+at+" UTC.")
		require.Contains(t, outbox.text(), "connect to broker 7: connection refused")
		require.ElementsMatch(t, []string{"m-1", "m-2", "m-3"}, b.column(b.page(b.linkTo(outbox, "See its messages")), 4))
		require.Contains(t, b.page(b.linkTo(outbox, "Message 1")).text(), "m-1")
	})
}

// A message that failed for another reason, long before the outage, may be the only one that has
// failed.
func TestMessage_has_no_error_of_an_outage_from_before_it(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	b.Forward(func(*message.Message) error { return errors.New("the payload is invalid") }, func() bool { return b.Count(admin.Retrying) > 0 })
	since := time.Now().Add(2 * time.Minute) // by the clock of a process that is fast
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{"orders": since}})
	at := since.UTC().Format("2006-01-02 15:04:05")
	outbox := b.page("queue?outbox=outbox").text()
	require.Contains(t, outbox, "The broker is away Topic orders , since "+at+" UTC.")
	require.NotContains(t, outbox, "the payload is invalid")
}

func TestMessage_waits_for_a_call_that_does_not_return(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"), dashboardtest.Message("m-2", "customer-1", "{}"), dashboardtest.Message("m-3", "customer-2", "{}"))
		b.Publish("orders", dashboardtest.Message("m-4", "customer-2", "{}"), dashboardtest.Message("m-5", "", "{}"), dashboardtest.Message("m-6", "customer-3", "{}"))
		calls := func(process string, since time.Duration, id int64) {
			b.Beat(process, spool.Heartbeat{InFlight: map[string]int{"orders": 1}, LongCall: &spool.Call{Since: time.Now().Add(-since), Topic: "orders", ID: id, MessageID: "m"}})
		}
		calls("host 1", time.Hour, 1)
		calls("host 2", 20*time.Second, 3)
		calls("host 3", 20*time.Second, 5)
		for id, wants := range map[int64]string{
			1: `It is in a call of process host 1 that has not returned since \S+ \S+ UTC\. The call may hang\. See the process`,
			2: `An earlier message of its key is in a call of process host 1 that has not returned since \S+ \S+ UTC\. The call may hang\. See message 1`,
			3: `It is in a call of process host 2 that has not returned since \S+ \S+ UTC\. See the process`,
			4: `An earlier message of its key is in a call of process host 2 that has not returned since \S+ \S+ UTC\. See message 3`,
			5: `It is in a call of process host 3 that has not returned since \S+ \S+ UTC\. See the process`,
		} {
			require.Regexp(t, `What it waits for `+wants, b.page(messageAt("message", id)).text())
		}
		require.NotContains(t, b.page(messageAt("message", 6)).text(), "What it waits for")
	})
}

func TestMessage_that_is_parked_or_waits_for_a_time_says_so(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		require.Contains(t, b.page(messageAt("message", 1)).text(), "It failed, and waits for its next attempt at ")

		b.Publish("orders", dashboardtest.Message("m-2", "customer-2", "{}"))
		b.Park("m-2")
		b.Publish("orders", dashboardtest.Message("m-3", "customer-2", "{}"))
		require.Contains(t, b.page(messageAt("message", 2)).text(),
			"What it waits for No process handles the outbox. See it It has used up its attempts, and waits for an operator. “Run now” gives it all its attempts again. “Bury” makes it a dead letter, and its key goes on.")
		b.board.Forget()
		require.Contains(t, b.page("").text(), "Outbox outbox has 1 message that used up all attempts and holds up its key.")
		require.Contains(t, b.page(messageAt("message", 3)).text(), "An earlier message of its key has used up its attempts and waits for an operator. See message 2")
	})
}

// Two services that have the same name for their outbox share one.
func TestOverview_shows_services_that_share_an_outbox(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Work: "kafka of the shop"})
	require.Contains(t, b.page("").text(), "Nothing needs attention.")
	b.Beat("host 43", spool.Heartbeat{InFlight: map[string]int{}, Work: "kafka of the bank"})
	b.restart(dashboard.Config{})
	require.Contains(t, b.page("").text(), "Outbox outbox is shared by processes that do different things with its messages: kafka of the bank; kafka of the shop.")
}

// The last heartbeats tell of an outage for some seconds after its end.
func TestOverview_needs_no_operator_for_an_outage_without_messages(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{"orders": time.Now()}})
	require.Contains(t, b.page("").text(), "Outbox outbox cannot reach the broker for topic orders since")
	require.Contains(t, b.page("queue?outbox=outbox").text(), "It is tried again by itself")

	b.Forward(func(*message.Message) error { return nil }, func() bool { return b.Count(admin.Ready) == 0 })
	b.restart(dashboard.Config{})
	require.Contains(t, b.page("").text(), "Nothing needs attention.")
	require.NotContains(t, b.page("").body, ">outage<")
	require.Contains(t, b.page("queue?outbox=outbox").text(), "No message waits. Processes still tell of an outage for some seconds after its end.")
}
