package drain

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Another transaction may have locked the row of a message that is to be settled: an operator's UPDATE that is not committed, or a
// process that hangs. A statement that settles the message would wait for it, and with it all other messages. So a settlement
// locks its rows first and skips those that are locked already. The messages of these rows are held: they stay in
// memory, nothing of their keys is read or handed out, and they are tried again each second. All other messages go on.
//
// Removing messages that are simply done is the one settlement that most messages go through, and locking their rows first would
// cost them a statement. It is tried without, for LockPatience at most, as long as nothing is held.
//
// In SQLite a transaction that writes has the whole file for itself, so there is no row to wait for.

// heldInterval is how often messages that are held are tried again.
const heldInterval = time.Second

// heldMessages are the messages that cannot be settled now. It belongs to the drainer's goroutine.
type heldMessages struct {
	entries []*schedule.Entry
	tryAt   time.Time
}

// take returns the messages if it is time to try them again.
func (h *heldMessages) take(now time.Time) []*schedule.Entry {
	if len(h.entries) == 0 || now.Before(h.tryAt) {
		return nil
	}
	entries := h.entries
	h.entries = nil
	return entries
}

// hiddenKeys returns the hashes of the keys that reads leave out: those that a message keeps closed which is held, or which rests. A read
// of them would find messages that must not be handled yet, and nothing else in a lane where they are many.
func (d *Drainer) hiddenKeys() (keys []int64) {
	for _, e := range slices.Concat(d.held.entries, d.setbacks.resting) {
		if e.Message.HasKey && e.Opens {
			e.Hidden = true
			keys = append(keys, e.Message.KeyHash)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lanes returns their lanes.
func (h *heldMessages) lanes() map[int]bool {
	lanes := map[int]bool{}
	for _, e := range h.entries {
		lanes[e.Message.Ref.Lane] = true
	}
	return lanes
}

// inUnlocked runs a settlement of messages in a transaction that has locked their rows, and returns the ids of those
// whose rows another transaction has locked. The settlement is told them and must leave them alone.
func (d *Drainer) inUnlocked(ctx context.Context, refs []dialect.Ref, settle func(tx *sql.Tx, locked map[int64]bool) error) (locked map[int64]bool, err error) {
	err = spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error {
		if locked, err = d.spool.LockRows(ctx, tx, d.id, refs); err != nil {
			return err
		}
		return settle(tx, locked)
	})
	return locked, err
}

// unlocked returns those that are not among the locked ones.
func unlocked(entries []*schedule.Entry, locked map[int64]bool) []*schedule.Entry {
	if len(locked) == 0 {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return locked[e.Message.Ref.ID] })
}

// refsOf returns the names of messages.
func refsOf(entries []*schedule.Entry) []dialect.Ref {
	refs := make([]dialect.Ref, len(entries))
	for i, e := range entries {
		refs[i] = e.Message.Ref
	}
	return refs
}

// heldUp says whether a statement that was given a limited time, or the server, gave up, perhaps for a lock.
func (d *Drainer) heldUp(limited context.Context, err error) bool {
	switch d.spool.Statements.Kind.Classify(err) {
	case dialect.Conflict, dialect.Interrupted:
		return true
	default:
		return limited.Err() != nil
	}
}

// addBehind adds to the locked messages those that stand behind one of them and have failed too. Written before it they would wait in
// the database without the one that they wait for, and the next holder of the lane could begin with them.
func addBehind(locked map[int64]bool, entries []*schedule.Entry) {
	first := map[int64]int64{} // by key
	for _, e := range entries {
		key, id := e.Message.KeyHash, e.Message.Ref.ID
		if e.Message.HasKey && locked[id] && (first[key] == 0 || id < first[key]) {
			first[key] = id
		}
	}
	for _, e := range entries {
		if before := first[e.Message.KeyHash]; e.Message.HasKey && before != 0 && before < e.Message.Ref.ID {
			locked[e.Message.Ref.ID] = true
		}
	}
}

// conclude forgets messages that are settled, and holds those whose rows are locked.
func (d *Drainer) conclude(ctx context.Context, entries []*schedule.Entry, locked map[int64]bool) {
	d.holdLocked(entries, locked)
	settled := unlocked(entries, locked)
	for _, e := range settled {
		if e.Announced {
			d.logger.Info("Postbox goes on with the key of a message whose row was locked", d.lockFields(e))
		}
	}
	d.settled(ctx, settled)
}

// holdLocked holds those whose rows are locked.
func (d *Drainer) holdLocked(entries []*schedule.Entry, locked map[int64]bool) {
	for _, e := range entries {
		if locked[e.Message.Ref.ID] {
			d.hold(e)
		}
	}
}

// hold keeps a message until its row can be locked.
func (d *Drainer) hold(e *schedule.Entry) {
	now := time.Now()
	if len(d.held.entries) == 0 {
		d.held.tryAt = now.Add(heldInterval)
	}
	d.held.entries = append(d.held.entries, e)
	if !e.Held {
		e.Held = true
		d.scheduler.Hold(e)
		if l := d.lanes.of(e.Message); l != nil && l.leaving {
			l.stay(pagesInMemory * d.config.PageSize)
			d.pollAt = time.Time{}
		}
		return
	}
	if !e.Announced { // it is still locked at the second try: most locks are gone by then
		e.Announced = true
		d.logger.Error("Postbox waits for a lock to settle a message: its key waits, the others go on, and it is tried again each second",
			spool.ErrRowLocked, d.lockFields(e))
	}
}

func (d *Drainer) lockFields(e *schedule.Entry) watermill.LogFields {
	return watermill.LogFields{"spool": d.spool.Name(), "topic": e.Message.Topic, "message_uuid": e.Message.MessageID}
}
