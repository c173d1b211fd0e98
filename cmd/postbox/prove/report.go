package prove

import (
	"context"
	"fmt"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Report is what became of the messages of a run.
type Report struct {
	// Kept: all numbers of broken promises are zero, and all messages were done in time.
	Kept bool `json:"kept"`
	// Lost counts effects that a message with a commit does not have, AppliedTwice effects that it
	// has once more, OrderViolations messages that the queue handled before an earlier one of their
	// key, or again after a later one, and NeverCommitted messages with an effect whose transaction
	// was rolled back.
	Lost            int `json:"lost"`
	AppliedTwice    int `json:"applied_twice"`
	OrderViolations int `json:"order_violations"`
	NeverCommitted  int `json:"never_committed"`
	// SlowPlans counts statements that run all the time and read whole tables.
	SlowPlans int  `json:"slow_plans"`
	CaughtUp  bool `json:"caught_up"`
	// Intents are the messages that were committed, and Applied their effects: one in the inbox,
	// one in the queue and one in the batch.
	Intents        int    `json:"intents"`
	Applied        int    `json:"applied"`
	Kills          int    `json:"kills"`
	CutConnections int    `json:"cut_connections"`
	BrokerFailures int    `json:"broker_failures"`
	Seed           uint64 `json:"seed"`

	Server   server   `json:"server"`
	Tried    []string `json:"tried"`
	NotTried []string `json:"not_tried"`
	// Examples are messages with a broken promise.
	Examples []string `json:"examples,omitempty"`
}

// lost selects the number of effects that are missing.
func (r *run) lost(consumer string) string {
	return "SELECT COUNT(*) FROM " + r.missing(consumer)
}

func (r *run) missing(consumer string) string {
	return r.place.table("intents") + " i WHERE NOT EXISTS (SELECT 1 FROM " + r.place.table("effects") + " e WHERE e.consumer = '" + consumer + "' AND e.message = i.message)"
}

func (r *run) twice(consumer string) string {
	return "(SELECT message, COUNT(*) - 1 AS more FROM " + r.place.table("effects") + " WHERE consumer = '" + consumer + "' GROUP BY message HAVING COUNT(*) > 1) d"
}

// disordered are the effects of the queue that saw another number of their key than the one before
// as the last one, but for repetitions, and for those before which a message was lost.
func (r *run) disordered() string {
	effects := r.place.table("effects")
	return effects + " e WHERE e.consumer = '" + queueGroup + "' AND e.k <> ''" +
		" AND NOT EXISTS (SELECT 1 FROM " + effects + " f WHERE f.consumer = e.consumer AND f.message = e.message AND f.id < e.id)" +
		" AND (e.prev > e.seq OR e.prev < e.seq - 1 AND EXISTS (SELECT 1 FROM " + effects + " p WHERE p.consumer = e.consumer AND p.k = e.k AND p.seq = e.seq - 1))"
}

func (r *run) uncommitted() string {
	return r.place.table("effects") + " e WHERE NOT EXISTS (SELECT 1 FROM " + r.place.table("intents") + " i WHERE i.message = e.message)"
}

func (r *run) number(ctx context.Context, query string) (n int, err error) {
	err = r.place.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// mostExamples is how many examples there are of each broken promise.
const mostExamples = 5

// judge counts what became of the messages, when all processes have ended.
func (r *run) judge(ctx context.Context, caughtUp bool) (*Report, error) {
	report := &Report{
		CaughtUp: caughtUp, Kills: r.counted(killed), CutConnections: r.counted(cut), BrokerFailures: r.brokerFailures(), Seed: r.Seed, Server: r.server,
	}
	add := func(to *int, count, example, what string) error {
		n, err := r.number(ctx, count)
		if *to += n; err != nil || n == 0 {
			return err
		}
		found, err := r.place.strings(ctx, example+fmt.Sprintf(" LIMIT %d", mostExamples))
		for _, message := range found {
			report.Examples = append(report.Examples, what+": message "+message)
		}
		return err
	}
	for _, consumer := range groupNames {
		if err := add(&report.Lost, r.lost(consumer), "SELECT i.message FROM "+r.missing(consumer), "lost, "+consumer); err != nil {
			return nil, err
		}
		if err := add(&report.AppliedTwice, "SELECT COALESCE(SUM(more), 0) FROM "+r.twice(consumer), "SELECT message FROM "+r.twice(consumer), "applied twice, "+consumer); err != nil {
			return nil, err
		}
	}
	if err := add(&report.OrderViolations, "SELECT COUNT(*) FROM "+r.disordered(), "SELECT e.message FROM "+r.disordered(), "out of order"); err != nil {
		return nil, err
	}
	if err := add(&report.NeverCommitted, "SELECT COUNT(DISTINCT e.message) FROM "+r.uncommitted(), "SELECT DISTINCT e.message FROM "+r.uncommitted(), "never committed"); err != nil {
		return nil, err
	}
	now, err := r.progress(ctx)
	if err != nil {
		return nil, err
	}
	report.Intents, report.Applied = now.intents, now.effects
	r.tried(report)
	if err := r.judgePlans(ctx, report); err != nil {
		return nil, err
	}
	report.Kept = caughtUp && now.intents > 0 && report.Lost+report.AppliedTwice+report.OrderViolations+report.NeverCommitted+report.SlowPlans == 0
	return report, nil
}

// judgePlans adds how the server executes statements.
func (r *run) judgePlans(ctx context.Context, report *Report) error {
	found, err := r.plans(ctx)
	if err != nil {
		return err
	}
	most := 0
	for _, p := range found {
		if most = max(most, p.reads); p.slow() {
			report.SlowPlans++
			report.Examples = append(report.Examples, fmt.Sprintf("slow plan: %s reads %d rows for %d messages, %d of them without an index", p.what, p.reads, page, p.whole))
		}
	}
	text := fmt.Sprintf("plans of statements that run all the time, beside %d messages: %d", 2*planned, len(found))
	if most > 0 {
		text += fmt.Sprintf(", which read %d rows at the most for %d messages", most, page)
	}
	report.Tried = append(report.Tried, text)
	return nil
}

// tried says what has happened, and what could not.
func (r *run) tried(report *Report) {
	tried := func(what string, n int) {
		if n > 0 {
			report.Tried = append(report.Tried, fmt.Sprintf("%s: %d", what, n))
		}
	}
	not := func(what, why string) { report.NotTried = append(report.NotTried, what+": "+why) }
	tried("processes killed, as with kill -9", r.counted(killed))
	tried("processes stopped and started, so that others take their lanes", r.counted(restarted))
	tried("processes frozen for longer than their lease", r.counted(frozen))
	tried("connections of the run cut, also in their transactions", r.counted(cut))
	tried("transactions held open with messages in them", r.counted(heldOpen))
	tried("transactions rolled back with messages in them", r.counted(rolledBack))
	tried("commits whose answer was lost", r.counted(unknown))
	tried("handlers that failed after they had written", r.counted(handlerFailed))
	tried("handlers that took longer than the lease", r.counted(slow))
	tried("times that the broker refused all messages", r.counted(refused))
	tried("times that the broker took messages and answered with errors", r.counted(lostAnswer))
	tried("times that the broker gave no answer", r.counted(silence))
	tried("deliveries that the broker made twice", r.broker.twice)
	if r.PoolerDSN != "" {
		where := "through the pooler"
		if r.place.dialect == postbox.MySQL {
			where = "on another node"
		}
		report.Tried = append(report.Tried, "a process of each kind but the batch "+where)
	}
	sqlite := r.place.dialect == postbox.SQLite
	switch {
	case sqlite:
		not("connections cut", "SQLite has no sessions")
		not("slow handlers, transactions open for seconds, frozen processes", "SQLite has one writer, and all would wait for it")
	case r.server.pooled:
		not("connections cut outside of transactions", "--dsn leads through a pooler in transaction mode, where they belong to all its clients")
	case r.counted(cut) == 0:
		not("connections cut", "the server has ended no session of the run; the role may lack the right to, or the run was too short")
	}
	if r.place.dialect == postbox.PostgreSQL && !r.server.pooled && r.PoolerDSN == "" {
		not("a pooler", "--through-pooler is not given")
	}
	if !canFreeze && !sqlite {
		not("frozen processes", "only on Linux")
	}
	if n := r.counted(endings); n > 0 {
		not("processes that live until they are killed", fmt.Sprintf("%d ended by themselves and were started again, the last one with: %s", n, r.lastFail))
	}
	if n := r.counted(stuck); n > 0 {
		not("a clean stop of each process", fmt.Sprintf("%d had to be killed", n))
	}
	not("a crash and a failover of the server", "a run must not disturb others")
}

// Result is the report in one line.
func (r *Report) Result() string {
	return fmt.Sprintf("RESULT lost=%d applied_twice=%d order_violations=%d never_committed=%d slow_plans=%d caught_up=%t intents=%d applied=%d kills=%d cut_connections=%d broker_failures=%d seed=%d",
		r.Lost, r.AppliedTwice, r.OrderViolations, r.NeverCommitted, r.SlowPlans, r.CaughtUp, r.Intents, r.Applied, r.Kills, r.CutConnections, r.BrokerFailures, r.Seed)
}

// String returns the report for people.
func (r *Report) String() string {
	var text strings.Builder
	fmt.Fprintln(&text, r.Result())
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&text, "%s:\n", title)
		for _, line := range lines {
			fmt.Fprintf(&text, "  %s\n", line)
		}
	}
	section("Broken promises, for example", r.Examples)
	fmt.Fprintln(&text, "Server: "+r.Server.Version)
	section("Tried", r.Tried)
	section("Not tried", r.NotTried)
	settings := make([]string, len(r.Server.Settings))
	for n, s := range r.Server.Settings {
		settings[n] = s.Name + " = " + s.Value
	}
	section("Settings", settings)
	return text.String()
}
