package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
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

func TestKeys_show_what_is_stuck_and_what_waits_behind_it(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		require.Contains(t, b.page("keys").text(), "There is no outbox and no queue yet.")
		b.restart(dashboard.Config{})
		b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		for _, id := range []string{"m-2", "m-3", "m-4"} {
			b.Publish("orders", dashboardtest.Message(id, "customer-1", "{}"))
		}
		keys := b.page("keys")
		require.Equal(t, []string{"customer-1"}, b.column(keys, 0))
		require.Equal(t, []string{"Run now"}, b.column(keys, 1), "a narrow window has the button")
		require.Equal(t, []string{"RETRYING"}, b.column(keys, 3))
		require.Equal(t, []string{"3"}, b.column(keys, 4))
		require.Contains(t, keys.text(), "card terminal 7 is offline")
		require.Contains(t, b.page("").text(), "Outbox outbox has 1 stuck key")
		require.Contains(t, b.do(messageAt("run-now", 1), nil).text(), "The message is due now.")
	})
}

// A typing error would let an operator believe that nothing is published.
func TestKeys_pause_of_a_topic_that_nobody_has_seen_asks_first(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders.placed", dashboardtest.Message("m-1", "customer-1", "{}"))
	asked := b.post("pause-topic?outbox=outbox", url.Values{"topic": {"orders.placd"}})
	require.Equal(t, http.StatusBadRequest, asked.status)
	require.Contains(t, asked.text(), "no message of topic orders.placd is pending")
	topics, err := b.Admin.Paused(t.Context(), admin.Outbox("outbox"))
	require.NoError(t, err)
	require.Empty(t, topics)
	b.do("pause-topic?outbox=outbox", url.Values{"topic": {"orders.placd"}, "unseen": {"yes"}})
	topics, err = b.Admin.Paused(t.Context(), admin.Outbox("outbox"))
	require.NoError(t, err)
	require.Len(t, topics, 1)
}

// Forty topics of a broker that is away are one line, in red, before everything else.
func TestOverview_has_one_line_for_an_outage(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Die("orders", "declined", dashboardtest.Message("d-1", "", "{}"))
	b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	away := map[string]time.Time{}
	for i := range 40 {
		away[fmt.Sprint("topic-", i)] = time.Now().Add(-time.Minute)
	}
	away["orders"] = time.Now().Add(-2 * time.Minute) // the first one
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: away})
	b.restart(dashboard.Config{})
	page := b.page("")
	require.Contains(t, page.text(), "Needs attention Outbox outbox cannot reach the broker for 41 topics since")
	require.Contains(t, page.text(), "1 message waits: none is lost")
	require.Contains(t, page.text(), "card terminal 7 is offline", "the error")
	require.NotContains(t, page.text(), "has 1 stuck key")
	require.Contains(t, page.body, `<li class="urgent"><span>Outbox outbox cannot reach`)
	require.Less(t, strings.Index(page.text(), "cannot reach"), strings.Index(page.text(), "has 1 dead letter"))
}

// Its attempts are not counted.
func TestFailing_is_not_0_where_a_message_waits_in_an_outage(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	all, err := dashboard.Several(dashboard.Board{Name: "shop", Handler: b.board})
	require.NoError(t, err)
	b.Publish("orders", dashboardtest.Message("m-0", "", "{}"))
	for _, page := range []string{"", "queue?outbox=outbox"} {
		require.Contains(t, b.page(page).text(), "Failing 0 ")
	}
	b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	b.board.Forget()
	for _, page := range []string{"", "queue?outbox=outbox"} { // no process tells of an outage any more
		require.Contains(t, b.page(page).text(), "Failing none counted ")
	}
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{"orders": time.Now()}})
	b.board.Forget()
	for _, page := range []string{"", "queue?outbox=outbox"} {
		require.Contains(t, b.page(page).text(), "Failing outage ")
	}
	require.Regexp(t, ` outage 0 1 0 All together .* outage 0 1 0 `, ask(t, all, http.MethodGet, "/").text())
	b.Database.Exec(t, "UPDATE postbox_messages SET attempts = 1")
	b.board.Forget()
	require.Contains(t, b.page("").text(), "Failing 2 ", "they had failed before the outage")
}

func TestKeys_pause_and_resume_a_topic(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		paused := b.do("pause-topic?outbox=outbox", url.Values{"topic": {"orders"}})
		require.Contains(t, paused.text(), "The topic is paused.")
		require.Equal(t, []string{"orders"}, b.column(paused, 0))
		require.Contains(t, b.page(messageAt("message", 1)).text(), "An operator paused its topic at")
		require.Equal(t, http.StatusBadRequest, b.post("pause-topic?outbox=outbox", nil).status)
		b.do("resume-topic?outbox=outbox&topic=orders", nil)
		topics, err := b.Admin.Paused(t.Context(), admin.Outbox("outbox"))
		require.NoError(t, err)
		require.Empty(t, topics)
	})
}

func TestPause_says_why_by_whom_and_until_when(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{Authorise: func(*http.Request) (dashboard.Access, error) {
			return dashboard.Access{Actor: "alice", Read: true, Act: true}, nil
		}})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		form := func(name, value string) url.Values {
			return url.Values{name: {value}, "reason": {"new broker"}, "until": {"2126-11-30T04:00"}}
		}
		const said = "UTC, until 2126-11-30 04:00:00 UTC, by alice (new broker)"
		topic := b.do("pause-topic?outbox=outbox", form("topic", "orders"))
		require.Equal(t, []string{"2126-11-30 04:00:00"}, b.column(topic, 3))
		require.Equal(t, []string{"alice"}, b.column(topic, 4))
		require.Equal(t, []string{"new broker"}, b.column(topic, 5))
		require.Contains(t, b.page(messageAt("message", 1)).text(), said)
		require.Contains(t, b.do("pause?outbox=outbox", form("", "")).text(), said)
		require.Contains(t, b.page("").text(), said)
		require.Contains(t, b.page("audit").text(), "new broker; until 2126-11-30T04:00:00Z")
		past := b.post("pause?outbox=outbox", url.Values{"until": {"2026-01-01T04:00"}})
		require.Equal(t, http.StatusBadRequest, past.status)
		require.Contains(t, past.text(), "until: 2026-01-01T04:00:00Z has passed: it is")
	})
}

func TestProcesses_show_which_process_holds_how_many_lanes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
		untouched := b.page("processes").text()
		require.Contains(t, untouched, "No process handles it.")
		require.Contains(t, untouched, "No process has handled it yet")
		require.NotContains(t, untouched, "0 of 0")
		running := make(chan struct{})
		var once sync.Once
		var shown string
		b.Forward(func(*message.Message) error { once.Do(func() { close(running) }); return nil }, func() bool {
			<-running
			shown = b.page("processes").text()
			return true
		})
		require.Contains(t, shown, "32 of 32 lanes are held.")
		require.Contains(t, b.page("processes").text(), "0 of 32 lanes are held.")
	})
}

// The text about an action quotes a key itself, and must not be escaped once more.
func TestAudit_names_keys_as_other_pages_do(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	require.NoError(t, b.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox"), Key: "bin\x00\xff"}))
	require.Equal(t, []string{`key "bin\x00\xff"`}, b.column(b.page("audit"), 4))
}

func TestAudit_lists_who_did_what(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{Authorise: func(r *http.Request) (dashboard.Access, error) {
			return dashboard.Access{Actor: r.Header.Get("X-User"), Read: true, Act: true}, nil
		}})
		require.Contains(t, b.page("audit").text(), "No operator has done anything yet.")
		b.Die("orders", "card declined", dashboardtest.Message("d-1", "", "{}"), dashboardtest.Message("d-2", "", "{}"))
		for user, action := range map[string]string{"anna": "pause?outbox=outbox", "bert": letterAt("delete", 1)} {
			r := b.request(http.MethodPost, action, url.Values{})
			r.Header.Set("X-User", user)
			require.Equal(t, http.StatusSeeOther, b.serve(r).status)
		}
		r := b.request(http.MethodPost, "bulk-run?do=requeue&topic=orders", url.Values{})
		r.Header.Set("X-User", "carla")
		require.Equal(t, 1, finished(t, b.serve(r)))

		require.ElementsMatch(t, []string{"anna", "bert", "carla"}, b.column(b.page("audit"), 1))
		require.Equal(t, []string{"pause"}, b.column(b.page("audit?actor=anna"), 2))
		require.Equal(t, []string{"carla"}, b.column(b.page("audit?action=requeue"), 1))
		require.Equal(t, []string{"1"}, b.column(b.page("audit?actor=carla"), 5))
		require.Contains(t, b.page("audit?until=2020-01-01T00:00").text(), "No action matches the filter.")
		require.Equal(t, []string{"anna"}, b.column(b.page("audit?in=outbox:outbox&action=pause"), 1))
		require.Equal(t, http.StatusBadRequest, b.get("audit?from=x").status)
		require.Equal(t, http.StatusBadRequest, b.get("audit?before=x").status)
	})
}

func TestGroups_lead_to_the_dead_letters_of_each(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		require.Contains(t, b.page("groups").text(), "There is no dead letter.")
		b.Die("orders", "card 4711 declined", dashboardtest.Message("d-1", "", "{}"))
		b.Die("orders", "card 4712 declined", dashboardtest.Message("d-2", "", "{}"))
		b.BuryInbox("d-3", "orders", "billing", "no such customer")
		groups := b.page(b.linkTo(b.page("letters"), "Groups"))
		require.Equal(t, []string{"2", "1"}, b.column(groups, 0))
		require.Equal(t, []string{"Outbox outbox", "Consumer billing"}, b.column(groups, 2))
		require.Len(t, b.column(b.page(b.linkTo(groups, "2")), 0), 2)
		require.Equal(t, []string{"no such customer"}, b.column(b.page(b.linkTo(groups, "1")), 1))
	})
}

func TestLetters_are_edited_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		msg := dashboardtest.Message("d-1", "", "{\n  \"cents\": -5\n}\n")
		msg.Metadata.Set("binary=", "\xff\n")
		b.Die("orders", "negative amount", msg)
		form := b.page(b.linkTo(b.page(letterAt("letter", 1)), "Edit and requeue…"))
		require.Contains(t, form.body, "binary\\x3d=\\xff\\x0a")
		require.Contains(t, form.body, "&#34;cents&#34;: -5")

		metadata := "binary\\x3d=\\xff\\x0a\r\n"
		same := b.post(letterAt("edit-run", 1), url.Values{"payload": {"{\r\n  \"cents\": -5\r\n}\r\n"}, "metadata": {metadata}})
		require.Equal(t, http.StatusBadRequest, same.status, "nothing was changed")
		require.Equal(t, http.StatusBadRequest, b.post(letterAt("edit-run", 1), url.Values{"metadata": {"x"}}).status)

		edited := b.do(letterAt("edit-run", 1), url.Values{"payload": {"{\r\n  \"cents\": 5\r\n}\r\n"}, "metadata": {metadata}})
		require.Contains(t, edited.text(), "The dead letter is edited")
		pending := b.messages(admin.Filter{})
		require.Len(t, pending, 1)
		again, err := b.Admin.Message(context.Background(), admin.Filter{Target: admin.Outbox("outbox"), ID: pending[0].ID})
		require.NoError(t, err)
		require.Equal(t, "{\n  \"cents\": 5\n}\n", string(again.Payload))
		require.Equal(t, "\xff\n", again.Metadata["binary="])

		twice := b.post(letterAt("edit-run", 1), url.Values{"payload": {"{}"}})
		require.Equal(t, http.StatusConflict, twice.status, twice.text())
		require.Len(t, b.messages(admin.Filter{}), 1)
	})
}

// A payload that a form would change, or that is hidden, is not in the form, and is kept whatever
// is sent.
func TestLetters_with_a_payload_that_is_no_plain_text_keep_it(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{FormatPayload: func(p dashboard.PayloadParams) (string, bool) {
		return "hidden", string(p.Payload) == "secret card"
	}})
	for i, payload := range []string{"a\r\nb", "\xff\xfe", "secret card"} {
		b.Die("orders", "x", dashboardtest.Message(payload, "", payload))
		id := int64(i + 1)
		form := b.page(letterAt("edit", id))
		require.Contains(t, form.text(), "The payload cannot be edited here")
		require.NotContains(t, form.body, "secret card")
		require.Equal(t, http.StatusBadRequest, b.post(letterAt("edit-run", id), url.Values{"payload": {"other"}}).status)
	}
}

func TestBulk_resolves_and_deletes_with_every_condition_of_the_filter(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Die("orders", "card declined", dashboardtest.Message("d-1", "customer-1", "{}"), dashboardtest.Message("d-2", "customer-2", "{}"))
		b.BuryInbox("d-3", "orders", "billing", "no such customer")
		const filter = "in=outbox:outbox&topic=orders&key=customer-1&error=declined&cause=permanent&min-attempts=1&max-attempts=5"

		confirm := b.page("bulk?do=resolve&" + filter).text()
		require.Contains(t, confirm, "1 dead letter matches this filter")
		require.Contains(t, confirm, "Error contains declined")
		require.Contains(t, confirm, "Outbox outbox")
		require.Equal(t, http.StatusBadRequest, b.post("bulk-run?do=resolve&"+filter, nil).status, "a reason is required")
		require.Equal(t, 1, finished(t, b.post("bulk-run?do=resolve&"+filter, url.Values{"reason": {"paid by hand"}})))
		require.Equal(t, 1, finished(t, b.post("bulk-run?do=delete&resolved=any&"+filter, nil)))
		require.Len(t, b.letters(admin.Filter{Resolved: "any"}), 2)
		require.Equal(t, http.StatusBadRequest, b.get("letters?min-attempts=x").status)
		require.Equal(t, http.StatusBadRequest, b.get("letters?min-attempts=5&max-attempts=1").status)
		require.Equal(t, http.StatusBadRequest, b.get("letters?cause=x").status)
	})
}

// Of many outboxes and queues, those of which something is held up come first, and only these are
// asked for more. Long lists of what is the same everywhere are cut.
func TestKeys_G8_show_what_is_held_up_first(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		for i := range 150 {
			database.Exec(t, "INSERT INTO postbox_spools (name) VALUES (?)", fmt.Sprintf("outbox-%03d", i))
		}
		require.NoError(t, b.Admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox("outbox-149"), Key: "customer-1"}))
		db, record := database.OpenRecorded(t)
		watched, err := admin.New(database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		b.board, err = dashboard.New(watched, dashboard.Config{Authorise: dashboard.LoopbackOnly}, nil)
		require.NoError(t, err)
		record.Take()
		keys := b.page("keys")
		require.Less(t, len(record.Take()), 40)
		require.Equal(t, []string{"customer-1"}, b.column(keys, 0))
		require.Less(t, strings.Index(keys.text(), "outbox-149"), strings.Index(keys.text(), "outbox-000"))
		require.Contains(t, b.page("find?text=nothing").text(), "These are the first 10 of 15")
	})
}

// An operator who knows that the broker is back need not wait for the end of a pause.
func TestOutage_says_when_it_is_tried_next_and_can_be_tried_now(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Delay("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
	since, next := time.Now().Add(-time.Minute), time.Now().Add(10*time.Minute)
	b.Beat("host 42", spool.Heartbeat{InFlight: map[string]int{}, Outages: map[string]time.Time{"orders": since}, Tries: map[string]time.Time{"orders": next}})
	b.restart(dashboard.Config{})
	for page, text := range map[string]string{
		"": `The next try is in (10m0s|9m\d+s)\.`, "queue?outbox=outbox": "It is tried next at " + next.UTC().Format(time.DateTime) + " UTC.",
	} {
		shown := b.page(page)
		require.Regexp(t, text, shown.text())
		require.Contains(t, shown.body, `<form method="post" action="run-now?id=1&amp;outbox=outbox"><button>Try now</button>`)
	}
	require.Contains(t, b.do("run-now?outbox=outbox&id=1", nil).text(), "The message is due now.")
}
