package drain

import (
	"flag"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The model drives the engine with random actions of random processes, one at a time, on a real
// database, and knows what must have become of each message. There are no workers and no clocks:
// what a worker does is an action, and time passes by an action too, so each interleaving is a
// matter of what rapid draws, and it shrinks the ones that fail.
//
//	model_test.go          the runs, and the actions
//	model_world_test.go    the database, and what surrounds the processes
//	model_operator_test.go what operators and cleaners do
//	model_process_test.go  a process: a Drainer whose steps the model takes
//	model_lock_test.go     somebody who locks the row of a message
//	model_outcome_test.go  what handlers do, and how it is settled
//	model_message_test.go  what the model knows of a message, and what must come of a turn
//	model_broker_test.go   what an outbox publishes to
//	model_blame_test.go    whether a failure to publish may count
//	model_log_test.go      the log of the database, and its receiver
//	model_check_test.go    comparing with the database, and the end

const (
	// modelChecks and modelSteps bound a run to some ten seconds on two cores.
	modelChecks, modelSteps = 150, 50
	// modelProcesses live at a time at most.
	modelProcesses = 3
)

// Also covers G2, G4, G6 and G9.
func TestModel_G3_on_SQLite(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModelInMemory(t)
	if bounded && raceDetector {
		m.most = modelChecks / 10 // a database in this process is checked for races too
	}
	rapid.Check(t, m.run)
}

// An outbox, whose broker is not always there and whose errors do not say why.
// Also covers G2, G3 and G9.
func TestModel_G7_of_an_outbox_on_SQLite(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModelInMemory(t)
	m.outbox = true
	if bounded && raceDetector {
		m.most = modelChecks / 15
	}
	rapid.Check(t, m.run)
}

// On PostgreSQL transactions overlap, so that messages appear late: after others with higher ids.
// Also covers G2, G4, G6, G9 and F4.
func TestModel_G3_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModel(t, testdb.Postgres(t))
	if bounded {
		m.most = modelChecks / 2 // each statement is a round trip
	}
	rapid.Check(t, m.run)
}

// With a log, from which processes take messages beside polling. Its receiver comes and goes, and
// lags behind. Also covers G2, G4, G6, G9 and F4.
func TestModel_G3_with_a_log_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModel(t, testdb.Postgres(t))
	m.tailing = true
	if bounded {
		m.most = modelChecks / 5 // each statement is a round trip
	}
	rapid.Check(t, m.run)
}

// An outbox with a log, whose broker is not always there.
// Also covers G2, G3 and G9.
func TestModel_G7_of_an_outbox_with_a_log_on_PostgreSQL(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModel(t, testdb.Postgres(t))
	m.tailing, m.outbox = true, true
	if bounded {
		m.most = modelChecks / 5
	}
	rapid.Check(t, m.run)
}

// On MariaDB too, where the watermark is found by other means.
// Also covers G2, G4, G6, G9 and F4.
func TestModel_G3_on_MariaDB(t *testing.T) {
	t.Parallel()
	bounded := bound()
	m := newModel(t, testdb.MySQL(t))
	if bounded {
		m.most = modelChecks / 5 // each statement is a round trip, and often a transaction
	}
	rapid.Check(t, m.run)
}

// bound sets the size of a run, unless the command line does: -rapid.checks=10000 is a search for
// an afternoon.
var bound = sync.OnceValue(func() (bounded bool) {
	checks := modelChecks
	if testing.Short() {
		checks /= 5
	}
	for name, value := range map[string]int{"rapid.checks": checks, "rapid.steps": modelSteps} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(strconv.Itoa(value)) // a number is one
			bounded = bounded || name == "rapid.checks"
		}
	}
	return bounded
})

// run is one check: some history of a spool, and then everything must come to its end.
func (m *model) run(rt *rapid.T) {
	if m.most > 0 && m.runs >= m.most && !m.failed {
		return
	}
	well := false
	defer func() { m.failed = m.failed || !well }() // then what shrinks it runs too
	w := m.newWorld(rt)
	defer w.close()
	w.spawn()
	actions := w.actions()
	rt.Repeat(map[string]func(*rapid.T){
		"":    func(*rapid.T) { w.check() },
		"act": func(*rapid.T) { rapid.SampledFrom(actions).Draw(rt, "action")() },
	})
	w.finale()
	well = true
}

// actions are what may happen. Some stand there more than once, and the first ones are drawn more
// often: trouble is worth something only where work is done.
func (w *world) actions() []func() {
	process := w.withProcess
	work := []func(){
		func() { process((*modelProcess).take) },
		func() { process((*modelProcess).finish) },
		func() { process((*modelProcess).step) },
	}
	actions := slices.Concat(work, []func(){w.append, w.passTime}, work, []func(){w.append}, work, work, work, []func(){
		w.spawn,
		w.passTime,
		func() { process((*modelProcess).loseLease) },
		func() { process((*modelProcess).crash) },
		func() { process((*modelProcess).stop) },
		func() { process((*modelProcess).exclude) },
		w.expireGhosts,
		w.pause, w.pauseKey, w.pauseTopic, w.unpark, w.takeAway, w.letter, w.purge,
	})
	if w.broker != nil {
		round := func() { process((*modelProcess).publishRound) }
		actions = slices.Concat([]func(){round, w.brokerChanges, round, w.append, round}, actions)
	}
	if w.db.Dialect != postbox.SQLite {
		actions = slices.Insert(actions, len(work), w.lockChanges)
	}
	if w.db.Dialect == postbox.PostgreSQL {
		actions = append(actions, w.appendLate, w.appendLate, w.commitLate)
	}
	if w.wal != nil {
		actions = append(actions, w.receive, w.changeReceiver)
		actions = slices.Concat([]func(){w.follow, w.follow}, actions, []func(){w.follow, w.follow, w.follow})
	}
	return actions
}
