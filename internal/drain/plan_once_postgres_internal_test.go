package drain

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// plannedAnew is how often PostgreSQL plans a prepared statement for its arguments before it compares that with one plan for all.
const plannedAnew = 5

// A poll of a few lanes was planned anew each time, which took longer than its execution: as far as the planner saw the lists of lanes and the limits, it expected less of them than of any others.
func TestPolls_are_planned_once_on_postgres(t *testing.T) {
	t.Parallel()
	for _, state := range plannedStates {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			w := newPlannedTables(t)
			if w.db.Count(t, "SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'pg_prepared_statements' AND column_name = 'custom_plans'") == 0 {
				t.Skip("needs PostgreSQL 14, which counts the plans of a prepared statement")
			}
			state.prepare(w)
			for _, lanes := range []int{1, plannedLanes} {
				for _, s := range append(w.polls(lanes), w.settling(lanes)...) {
					w.run("PREPARE p AS " + s.query.Text)
					for range plannedAnew + 2 {
						w.execute("p", s)
					}
					var anew int
					require.NoError(t, w.conn.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(custom_plans), 0) FROM pg_prepared_statements WHERE name = 'p'").Scan(&anew))
					require.LessOrEqual(t, anew, plannedAnew, "%s of %d lanes", s.name, lanes)
					w.run("DEALLOCATE p")
				}
			}
		})
	}
}

// polls are the reads of a process that holds some lanes.
func (w *plannedTables) polls(lanes int) []planned {
	p := dialect.FetchParams{Spool: w.spool, Inline: InlineBytes, PerLane: 1, Due: 1}
	sweep := dialect.SweepParams{Spool: w.spool}
	for lane := range lanes {
		p.Cursors = append(p.Cursors, dialect.Cursor{Lane: lane})
		sweep.Ranges = append(sweep.Ranges, dialect.Range{Lane: lane, UpTo: 1 << 40})
	}
	page := p
	page.PerLane, page.Due = plannedPage/lanes, plannedPage
	excluding := page
	excluding.Excluded, excluding.PausedKeys = []string{"another"}, true
	const everyRead = 2 // a message, and what else a poll wants to know
	return []planned{
		{name: "fetch one", query: w.own.Statements.Fetch(p), rows: everyRead},
		{name: "fetch a page", query: w.own.Statements.Fetch(page), rows: everyRead},
		{name: "fetch a page, beside paused keys", query: w.own.Statements.Fetch(excluding), rows: everyRead},
		{name: "sweep", query: w.own.Statements.Sweep(sweep), rows: lanes},
	}
}

// settling are the statements that settle a few messages.
func (w *plannedTables) settling(messages int) (all []planned) {
	const least = 2 // there are other statements for one
	ready := w.refs("postbox_messages", dialect.StateReady)[:messages+least]
	mixed := slices.Concat(w.refs("postbox_waiting", dialect.StateRetrying)[:messages], ready[:least])
	started := make([]dialect.Started, len(mixed))
	for i, r := range mixed {
		started[i] = dialect.Started{Ref: r, Before: 1}
	}
	s := w.own.Statements
	return []planned{
		{name: "remove", query: s.RemoveWhere(w.spool, ready, w.seen), rows: len(ready), changes: true},
		{name: "remove what waited", query: s.RemoveWhere(w.spool, mixed, w.seen), rows: len(mixed), changes: true},
		{name: "keep", query: s.Keep(w.spool, ready), rows: len(ready)},
		{name: "standing", query: s.StandingWhere(w.spool, mixed, w.seen), rows: len(mixed)},
		{name: "count starts", query: s.CountStarts(w.spool, started), rows: len(started), changes: true},
	}
}
