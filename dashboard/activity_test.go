package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestQueue_shows_what_was_done_in_an_hour_a_day_and_a_week(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
		require.Contains(t, b.page("queue?outbox=outbox").text(), "Nothing is known of this time.")

		now := time.Now().Unix() / 60
		write := func(minute int64, done int, starts int, process string) {
			database.Exec(t, `INSERT INTO postbox_minutes (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
				VALUES (?, 3, ?, 2, 1, 5000, 20000, 1000, 2000000, ?, 'outbox', 'outbox', ?)`, minute, done, starts, process)
		}
		write(now-3, 40, 1, "a")
		write(now-3, 2, 1, "b")
		write(now-3*60, 500, 0, "a")
		write(now-3*24*60, 9000, 0, "a")
		for span, says := range map[string]string{"": "highest 42 in a minute", "&span=hour": "highest 42 in a minute", "&span=day": "highest 500 in 15 minutes", "&span=week": "highest 9,000 in 2 hours"} {
			text := b.page("queue?outbox=outbox" + span).text()
			require.Contains(t, text, says)
			require.Contains(t, text, "highest 20 ms")
			require.Contains(t, text, "highest 2 s")
			require.Contains(t, text, "2 starts of processes")
		}
		require.Equal(t, http.StatusBadRequest, b.get("queue?outbox=outbox&span=year").status)
	})
}

// A time in which nothing is known is a gap, and one in which a process had nothing to do is not.
func TestQueue_shows_where_its_charts_have_no_samples(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
		now := time.Now().Unix() / 60
		write := func(minute int64, starts, wait int) {
			database.Exec(t, `INSERT INTO postbox_minutes (minute, arrived, done, failed, dead, wait_p50, wait_p95, call_p50, call_p95, starts, kind, name, process)
				VALUES (?, 3, 1, 0, 0, ?, ?, 0, 0, ?, 'outbox', 'outbox', 'a')`, minute, wait, wait, starts)
		}
		charts := func() (said []string) {
			for _, chart := range regexp.MustCompile(`(?s)<figure class="chart past">.*?</figure>`).FindAllString(b.page("queue?outbox=outbox").body, -1) {
				said = append(said, answer{body: chart}.text())
			}
			require.Len(t, said, 4)
			return said
		}
		const none = "no samples"
		write(now-30, 1, 1000)
		messages, failures, calls := charts()[0], charts()[1], charts()[3]
		require.Equal(t, 2, strings.Count(messages, none), "before and after: %s", messages)
		require.Contains(t, failures, "highest 0 in a minute", "none has failed")
		require.Equal(t, 1, strings.Count(calls, none), "all the time: %s", calls)
		require.NotContains(t, calls, "highest")

		write(now-3, 0, 1000)
		messages, waiting := charts()[0], charts()[2]
		require.Equal(t, 1, strings.Count(messages, none), "the process was there between: %s", messages)
		require.Equal(t, 2, strings.Count(waiting, none), "nothing had to wait between: %s", waiting)
	})
}

// A role may lack the right, and the page is for a night in which something else is wrong.
func TestQueue_does_without_what_was_done(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t), dashboard.Config{})
	b.Publish("orders", dashboardtest.Message("m-1", "", "{}"))
	b.Database.Exec(t, "DROP TABLE postbox_minutes")
	text := b.page("queue?outbox=outbox").text()
	require.Contains(t, text, "It could not be read:")
	require.Contains(t, text, "1 pending")
}
