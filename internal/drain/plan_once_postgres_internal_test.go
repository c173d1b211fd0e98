package drain

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// plannedAnew is how often PostgreSQL plans a prepared statement for its arguments before it
// compares that with one plan for all.
const plannedAnew = 5

// A poll of a few lanes was planned anew each time, which took longer than its execution: as far as
// the planner saw the lists of lanes and the limits, it expected less of them than of any others.
// So was the read of a single payload, whose state it saw. The same holds for all statements that
// are sent often.
func TestPolls_are_planned_once_on_postgres(t *testing.T) {
	t.Parallel()
	for _, state := range plannedStates {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			w := newPlannedTables(t)
			if w.db.Count(t, "SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'pg_prepared_statements' AND column_name = 'custom_plans'") == 0 {
				t.Skip("PostgreSQL 14 or later is missing: this version does not count the plans of a prepared statement")
			}
			state.prepare(w)
			for _, lanes := range []int{1, plannedLanes} {
				for _, s := range slices.Concat(w.polls(lanes), w.settling(lanes), w.unique(), w.storing(lanes), w.single()) {
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
	s := w.own.Statements
	return []planned{
		{name: "remove", query: s.RemoveWhere(w.spool, ready, w.seen), rows: len(ready), changes: true},
		{name: "remove what waited", query: s.RemoveWhere(w.spool, mixed, w.seen), rows: len(mixed), changes: true},
		{name: "keep", query: s.Keep(w.spool, ready), rows: len(ready)},
		{name: "count starts", query: s.CountStarts(w.spool, asRead(mixed)), rows: len(mixed), changes: true},
		{name: "lock as read", query: s.LockAsRead(w.spool, asRead(mixed)), rows: len(mixed)},
		{name: "settle failed", query: s.SettleFailed(w.spool, "one", w.failed(mixed)).Together, rows: 1},
	}
}

// storing are the statements that store messages and claims, as of producers and consumers.
func (w *plannedTables) storing(messages int) (all []planned) {
	rows := func(state int) (rows []dialect.Row, claims [][]byte) {
		for i := range messages + 2 { // there are other statements for one
			rows = append(rows, dialect.Row{State: state, Topic: "orders", MessageID: []byte("id"), Payload: []byte("payload"), Metadata: []byte("{}")})
			claims = append(claims, fmt.Append(nil, "claim ", state, i))
		}
		return rows, claims
	}
	ready, claims := rows(dialect.StateReady)
	later, laterClaims := rows(dialect.StateScheduled)
	s := w.own.Statements
	one := func(name string, query dialect.Query) {
		all = append(all, planned{name: name, query: query, changes: true})
	}
	one("append one", s.Append(w.spool, ready[:1])[0])
	one("append some", s.Append(w.spool, ready)[0])
	one("append some that wait", s.Append(w.spool, later)[0])
	one("ingest", s.Ingest(w.spool, claims, ready).Whole)
	one("ingest some that wait", s.Ingest(w.spool, laterClaims, later).Whole)
	one("claim", dialect.Query{Text: s.Claim, Args: []any{[]byte("key")}})
	one("await a receipt", s.AwaitReceipts([]dialect.ReceiptRow{{Key: []byte("key"), Topic: "orders", MessageID: []byte("id"), Consumer: "one", Within: 1}})[0])
	one("fulfil a receipt", s.FulfilReceipt(dialect.ReceivedRow{Key: []byte("key")}, dialect.ReceiptAwaited))
	one("keep a received message", s.KeepReceived(dialect.Received{Claim: []byte("key"), Spool: w.spool, Topic: "orders", MessageID: []byte("id"), Payload: []byte("payload"), Metadata: []byte("{}")}))
	return all
}

// single are the statements that settle one message, and those that renew leases.
func (w *plannedTables) single() []planned {
	ready := w.refs("postbox_messages", dialect.StateReady)[0]
	s, member := w.own.Statements, dialect.JoinParams{Member: dialect.Member{Spool: w.spool, Holder: "one"}, InFlight: "{}", TTL: 1}
	return []planned{
		{name: "remove one", query: s.RemoveWhere(w.spool, []dialect.Ref{ready}, nil), rows: 1, changes: true},
		{name: "remove one, on this server", query: s.RemoveWhere(w.spool, []dialect.Ref{ready}, w.seen), rows: 1, changes: true},
		{name: "keep one", query: s.Keep(w.spool, []dialect.Ref{ready}), rows: 1},
		{name: "load a payload", query: s.LoadPayload(w.spool, ready), rows: 1},
		{name: "join", query: s.Join(member), changes: true},
		{name: "renew", query: s.Renew(member), changes: true},
		{name: "held lanes", query: s.Held(member.Member)},
	}
}
