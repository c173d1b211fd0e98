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

// Another transaction may have locked the row of a message that is to be settled: an operator's
// UPDATE that is not committed, or a process that hangs. A statement that settles the message would
// wait for that row, and so would all other messages. So a settlement locks its rows first and
// skips rows that are already locked. Their messages rest, as those of other setbacks do: see
// setback.go. They are tried again each second. All other messages continue.
//
// Most messages are settled by removing them because they are done, and locking their rows first
// would cost an additional statement. So as long as no row is known to be locked, a removal first
// runs without locking, for as long as patience.go says.
//
// In SQLite a writing transaction locks the whole file, so no statement waits for a row.

// lockedInterval is how often the drainer tries messages again whose rows are locked.
const lockedInterval = time.Second

// hiddenKeys returns the hashes of the keys that reads leave out: the keys closed by a message that
// rests, or is in a call that hangs. A read of these keys would find messages that must not be
// handled yet. In a lane with many of them it would find nothing else.
func (s *settler) hiddenKeys() (keys []int64) {
	for _, e := range slices.Concat(s.setbacks.resting, s.scheduler.HungEntries()) {
		if e.Message.HasKey && e.ClosesKey {
			e.Hidden = true
			keys = append(keys, e.Message.KeyHash)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keptLanes returns the lanes that are not handed back: those of resting messages whose outcome is
// not recorded yet. Their next holder would handle these messages a second time. So would that of a
// message in a call that hangs.
func (s *settler) keptLanes() map[int]bool {
	lanes := map[int]bool{}
	for _, e := range s.setbacks.resting {
		if e.Locked || mustBeStored(e.Outcome.Verdict) {
			lanes[e.Message.Ref.Lane] = true
		}
	}
	for _, e := range s.scheduler.HungEntries() {
		if number := e.Message.Ref.Lane; s.lanes.held[number] != nil {
			lanes[number] = true
		}
	}
	return lanes
}

// inUnlocked locks the rows of messages and runs a settlement of them in the same transaction. It
// returns the ids of messages whose rows another transaction has locked. The settlement gets these
// ids and must not change their messages.
func (c *core) inUnlocked(ctx context.Context, refs []dialect.Ref, settle func(ctx context.Context, tx *sql.Tx, locked map[int64]bool) error) (locked map[int64]bool, err error) {
	err = c.inPart(ctx, len(refs), func(ctx context.Context, tx *sql.Tx) error {
		if locked, err = c.spool.LockRows(ctx, tx, c.id.Load(), refs); err != nil {
			return err
		}
		return settle(ctx, tx, locked)
	})
	return locked, err
}

// unlocked returns the entries whose rows are not locked.
func unlocked(entries []*schedule.Entry, locked map[int64]bool) []*schedule.Entry {
	if len(locked) == 0 {
		return entries
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return locked[e.Message.Ref.ID] })
}

// refsOf returns the references of messages.
func refsOf(entries []*schedule.Entry) []dialect.Ref {
	refs := make([]dialect.Ref, len(entries))
	for i, e := range entries {
		refs[i] = e.Message.Handled()
	}
	return refs
}

// gaveUp reports whether a statement was given up, by its time limit or by the server, perhaps
// because of a lock.
func (c *core) gaveUp(limited context.Context, err error) bool {
	switch c.spool.Statements.Kind.Classify(err) {
	case dialect.Conflict, dialect.Interrupted:
		return true
	default:
		return limited.Err() != nil
	}
}

// awaitLock lets a message rest until its row can be locked.
func (s *settler) awaitLock(e *schedule.Entry) {
	if !s.setbacks.anyLocked() {
		s.setbacks.lockedUntil = time.Now().Add(lockedInterval)
	}
	again := e.Locked
	e.Locked = true
	s.layDown(e)
	if again && !e.LockLogged { // still locked at the second try: most locks are gone by then
		e.LockLogged = true
		s.logger.Error("Postbox waits for a lock to settle a message: its key waits, other keys continue, and Postbox tries again each second",
			spool.ErrRowLocked, s.lockFields(e))
	}
}

// keepLane keeps the lane of a resting message if it was to be handed back. The obstacle may last
// for long, and no process reads such a lane meanwhile. A lane may also be given away while its
// message is tried again, since it does not rest then.
func (s *settler) keepLane(e *schedule.Entry) { s.keep(s.lanes.of(e.Message)) }

func (c *core) keep(l *lane) {
	if l != nil && l.leaving {
		l.stay(pagesInMemory * c.config.PageSize)
		c.pace.now()
	}
}

func (s *settler) lockFields(e *schedule.Entry) watermill.LogFields {
	return watermill.LogFields{"spool": s.spool.Name(), "topic": e.Message.Topic, "message_uuid": e.Message.MessageID}
}
