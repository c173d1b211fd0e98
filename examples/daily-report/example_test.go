package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/examples/internal/pipes"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// Covers feature N2, feature 0.5 and feature 0.14.
func TestRun_reports_each_sale_once_on_SQLite_and_GoChannel(t *testing.T) {
	t.Parallel()
	requireReports(t, func() pipes.Settings { return pipes.Settings{Database: "sqlite", Broker: "gochannel"} })
}

// Covers feature N2, feature 0.5 and feature 0.14.
func TestRun_reports_each_sale_once_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	for broker, variable := range map[string]string{"rabbitmq": testservice.AMQPVariable, "kafka": testservice.KafkaVariable} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			address := testservice.Address(t, variable)
			requireReports(t, func() pipes.Settings {
				return pipes.Settings{
					Database: "postgres", DSN: testdb.Postgres(t).DSN,
					Broker: broker, BrokerURL: address, TopicPrefix: "example." + postbox.NewMessageID() + ".",
				}
			})
		})
	}
}

// requireReports runs the example, which verifies itself. A machine that is too busy for short days
// gets longer ones.
func requireReports(t *testing.T, place func() pipes.Settings) {
	t.Helper()
	var out bytes.Buffer
	var err error
	for _, schedule := range []string{"*/3 * * * * *", "*/20 * * * * *"} {
		out.Reset()
		err = run(t.Context(), &out, settings{Settings: place(), schedule: schedule, timeZone: "Europe/Berlin", sales: 12, size: 5})
		if err == nil || err.Error() != errNotMadeUp.Error() { // if it is that and nothing else
			break
		}
	}
	require.NoError(t, err, out.String())

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Regexp(t, `^RESULT sales=\d+ reported=\d+ culprits=\d+ reports=\d+ made_up=[1-9]\d* duplicates_absorbed=[1-9]\d* `+
		`lost=0 twice=0 wrong_day=0 early=0 wrong_totals=0 wrongly_dead=0 left=0 missing=0$`, lines[len(lines)-1], out.String())
}

// The example is worth something only if it sees what goes wrong.
func TestOutcome_detects_wrong_results(t *testing.T) {
	t.Parallel()
	days, err := newCalendar("0 0 * * *", "Europe/Berlin")
	require.NoError(t, err)
	day := func(n int) time.Time { return time.Date(2026, time.March, n, 0, 0, 0, 0, days.zone) }
	noon, night := day(1).Add(12*time.Hour), day(2).Add(time.Minute)
	first := account{midnight: day(2).UnixMicro(), currency: "EUR"}
	second := account{midnight: day(3).UnixMicro(), currency: "EUR"}

	good := func() books {
		return books{
			sales:   map[string]sale{"good": {ID: "good", Currency: "EUR", Cents: 5}, "bad": {ID: "bad", Currency: "EUR", Cents: -5}},
			lines:   map[string][]time.Time{"good": {day(2)}},
			stored:  map[string]time.Time{"good": noon},
			done:    map[string]time.Time{"good": night},
			dead:    map[string]string{"bad": "negative"},
			reports: totals{first: {1, 5}},
			batches: 2,
			queue:   admin.Account{Written: 2, Done: 1, Dead: 1},
		}
	}
	for name, check := range map[string]struct {
		change func(b *books)
		want   []string
	}{
		"nothing": {func(*books) {}, nil},
		"a sale is in no report": {
			func(b *books) { delete(b.lines, "good"); clear(b.reports) },
			[]string{"sales are in no report", "do not add up", "no missed report"},
		},
		"a sale is in two reports": {
			func(b *books) { b.lines["good"] = []time.Time{day(2), day(3)}; b.reports[second] = sum{1, 5} },
			[]string{"sales are reported twice", "another day", "before midnight"},
		},
		"a sale is in one report twice": {
			func(b *books) { b.lines["good"] = []time.Time{day(2), day(2)}; b.reports[first] = sum{2, 10} },
			[]string{"sales are reported twice"},
		},
		"a sale is in the next report": {
			func(b *books) { b.lines["good"] = []time.Time{day(3)}; b.reports = totals{second: {1, 5}} },
			[]string{"another day", "before midnight", "no missed report"},
		},
		"a report is made before midnight": {
			func(b *books) { b.done["good"] = noon.Add(time.Hour) },
			[]string{"before midnight", "no missed report"},
		},
		"a missed report is made a day late": {
			func(b *books) { b.done["good"] = day(3) },
			[]string{"no missed report"},
		},
		"a report has another sum": {
			func(b *books) { b.reports[first] = sum{1, 6} },
			[]string{"not the sum of their sales"},
		},
		"a report is missing":      {func(b *books) { clear(b.reports) }, []string{"not the sum of their sales"}},
		"an innocent sale is dead": {func(b *books) { b.dead["good"] = "why?" }, []string{"dead letters are not just the wrong sales"}},
		"a culprit is reported": {
			func(b *books) {
				delete(b.dead, "bad")
				b.lines["bad"] = b.lines["good"]
				b.stored["bad"] = noon
				b.done["bad"] = night
				b.reports[first] = sum{2, 0}
			},
			[]string{"dead letters are not just the wrong sales", "no sale was wrong"},
		},
		"a sale was stored twice":     {func(b *books) { b.queue.Written = 3 }, []string{"another number of sales"}},
		"a sale is left in the queue": {func(b *books) { b.queue.Pending = 1 }, []string{"left in the queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := good()
			check.change(&b)
			o := b.outcome(days, day(2).Add(time.Second))
			o.duplicates = 1
			err := o.verdict()
			if check.want == nil {
				require.NoError(t, err)
				return
			}
			require.Len(t, strings.Split(err.Error(), "\n"), len(check.want), err)
			for _, want := range check.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
