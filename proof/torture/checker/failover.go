package checker

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

// Failover is one change of the database under the processes: a standby was promoted, or an older
// copy restored.
type Failover struct {
	// Kind is the fault.
	Kind string
	// Since is a time before which all that was confirmed is in the new database. Moved is when
	// clients were led to it: two seconds after the old one had stopped, so that a process has long
	// written down what the old one confirmed.
	Since, Moved time.Time
	// Lossless says that the new database has all that the old one had confirmed: nothing is
	// excused.
	Lossless bool
	// Has is what the new database had before any client reached it.
	Has Holdings
	// Leases are those that the old database knew of just before it was stopped.
	Leases []Lease
}

// Work is one message to one consumer.
type Work struct{ Consumer, Message string }

// Holdings are what a database has, as far as a failover can lose it.
type Holdings struct {
	Intents map[string]bool // by message
	Effects map[Work]bool
	// Stored are the works that wait in a queue or are dead, and Claims the keys of all claims.
	Stored map[Work]bool
	Claims map[string]bool
}

// lacks returns something of earlier that h does not have, "" if there is nothing.
func (h Holdings) lacks(earlier Holdings) string {
	for message := range earlier.Intents {
		if !h.Intents[message] {
			return "the intent of " + message
		}
	}
	for w := range earlier.Effects {
		if !h.Effects[w] {
			return fmt.Sprintf("the effect of %s at %s", w.Message, w.Consumer)
		}
	}
	return ""
}

// Follows returns an error if the new database lacks something that stood in the old one at
// [Failover.Since]: such a failover has lost more than may be excused, and nothing can be said of
// the run.
func (h Holdings) Follows(earlier Holdings) error {
	if missing := h.lacks(earlier); missing != "" {
		return fmt.Errorf("the new database lacks %s, which the old one had before its standbys were cut off", missing)
	}
	return nil
}

// ReadHoldings reads what a database has, in one snapshot.
func ReadHoldings(ctx context.Context, db *sql.DB) (Holdings, error) {
	h := Holdings{Intents: map[string]bool{}, Effects: map[Work]bool{}, Stored: map[Work]bool{}, Claims: map[string]bool{}}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return h, err
	}
	defer func() { _ = tx.Rollback() }()
	found := &reading{ctx: ctx, tx: tx}
	for _, table := range []struct {
		query string
		scan  func(row scanner) error
	}{
		{selectIntents, found.intent},
		{selectEffects, found.effect},
		{selectPending, found.pending},
		{selectLetters, found.letter},
		{selectClaimKeys, func(row scanner) error {
			var key text
			err := row.Scan(&key)
			h.Claims[string(key)] = true
			return err
		}},
	} {
		if err := found.rows(table.query, table.scan); err != nil {
			return h, fmt.Errorf("read what the database has: %w: %s", err, strings.TrimSpace(table.query))
		}
	}
	for _, i := range found.Intents {
		h.Intents[i.Message] = true
	}
	for _, e := range found.Effects {
		h.Effects[Work{e.Consumer, e.Message}] = true
	}
	for _, p := range found.Pending {
		h.Stored[Work{p.Queue, p.Message}] = true
	}
	for _, l := range found.Letters {
		h.Stored[Work{l.Consumer, l.Message}] = true
	}
	return h, nil
}

// ReadLeases reads the changes of leases so far.
func ReadLeases(ctx context.Context, db *sql.DB) ([]Lease, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	found := &reading{ctx: ctx, tx: tx}
	err = found.rows(selectLeases, found.lease)
	return found.Leases, err
}

const (
	// awake is how long a process that was stopped may take to write down what it knew before.
	awake = 2 * time.Second
	// longest is how long a transaction may be open whose end its process never learnt.
	longest = 15 * time.Second
	// forgetting is how long a process may go on to publish what it had in memory when the database
	// failed over: it may be asleep, and the broker away, before it reads again.
	forgetting = 20 * time.Second
)

// mayLose says whether what a process wrote down at that time may have been confirmed by the old
// database alone. That it was is known only if the new one lacks it.
func (x *index) mayLose(f Failover, process string, at time.Time) bool {
	if f.Lossless || at.Before(f.Since) {
		return false
	}
	if !at.After(f.Moved) {
		return true
	}
	return slices.ContainsFunc(x.Troubles, func(t Trouble) bool {
		return t.Sleeps && t.concerns(process) && t.From.Before(f.Moved) && t.To.After(f.Moved) && at.Before(t.To.Add(awake))
	})
}

// confirmation is what a process wrote down about a work when the database had confirmed that it is
// done, stored, or a duplicate of one.
type confirmation struct {
	kind    history.Kind
	process string
	at      time.Time
}

// isLost says whether a failover has lost what was confirmed.
func (x *index) isLost(w Work, c confirmation) bool {
	return slices.ContainsFunc(x.Failovers, func(f Failover) bool {
		if !x.mayLose(f, c.process, c.at) || f.Has.Effects[w] {
			return false
		}
		if c.kind == history.Duplicate && x.works[w].saw == 0 { // of what? No handler has ever seen it
			return false
		}
		// What was applied may be lost although the message is still stored. All else needs that
		// nothing is left of it.
		return c.kind == history.Applied || !f.Has.Stored[w] && !f.Has.Claims[claimSubject(w.Consumer, x.flows[w.Consumer].Topic, w.Message)]
	})
}

// lostAll says whether failovers have lost all that was confirmed of a work since it was requeued
// last, which excuses that it is not done: the broker has heard an ack. One confirmation that they
// have not lost, and it is not excused. Nor is it if the last new database had the message in a
// queue or as a dead letter, whatever the old one did with it: there it must be done, wait or be
// dead.
func (x *index) lostAll(w Work) bool {
	s := x.works[w]
	if n := len(x.Failovers); s == nil || n > 0 && x.Failovers[n-1].Has.Stored[w] {
		return false
	}
	standing := slices.DeleteFunc(slices.Clone(s.confirmed), func(c confirmation) bool { return c.at.Before(s.reopened) })
	return len(standing) > 0 && !slices.ContainsFunc(standing, func(c confirmation) bool { return !x.isLost(w, c) })
}

// lostOnce says whether a failover has lost anything that was confirmed of a work. If it comes
// again, it is late.
func (x *index) lostOnce(w Work) bool {
	s := x.works[w]
	return s != nil && slices.ContainsFunc(s.confirmed, func(c confirmation) bool { return x.isLost(w, c) })
}

// lostIntent returns the failover that has lost a message which its producer had committed, or may
// have.
func (x *index) lostIntent(message string) (Failover, bool) {
	s := x.said[message]
	if _, there := x.intents[message]; there || s == nil || !s.intended || s.rolledBack {
		return Failover{}, false
	}
	for _, f := range x.Failovers {
		may := x.mayLose(f, s.producer, s.committedAt)
		if !s.committed {
			may = !f.Lossless && s.intendedAt.Before(f.Moved) && s.intendedAt.After(f.Since.Add(-longest))
		}
		if may && !f.Has.Intents[message] {
			return f, true
		}
	}
	return Failover{}, false
}

// epoch counts the failovers with a loss before a time.
func (x *index) epoch(at time.Time) (n int) {
	for _, f := range x.Failovers {
		if !f.Lossless && at.After(f.Moved) {
			n++
		}
	}
	return n
}

// LostWorks tells which works failovers have lost so that nothing will ever do them, by what
// processes wrote down.
func LostWorks(e Evidence) func(consumer, message string) bool {
	x := newIndex(e)
	return func(consumer, message string) bool {
		return x.lostAll(Work{consumer, message})
	}
}
