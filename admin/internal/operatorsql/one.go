package operatorsql

import (
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// StateDone marks messages of the history in lists of messages; it is never stored.
const StateDone = 3

// Place is the position of a message in a list, by state, lane and id, or, in the history, by time
// and id.
type Place struct {
	State int
	Lane  int64 // in the history the time
	ID    int64
}

// String returns the place as operators pass it from one page to the next.
func (p Place) String() string { return fmt.Sprintf("%d-%d-%d", p.State, p.Lane, p.ID) }

// KeyRef identifies an ordering key of a spool.
type KeyRef struct {
	Spool, Hash int64
	Key         []byte
}

// Lookup identifies a message for an operator, who holds no lane and knows only the id.
type Lookup struct{ Spool, ID int64 }

// Burial holds the columns of a message's dead letter that the message itself does not have.
type Burial struct {
	Subject []byte
	Error   string
	Cause   dialect.Cause
}

// SetSettings stores the settings of a spool. It changes no row if they are equal to the stored
// ones.
func (s *Statements) SetSettings(spool int64, settings string) dialect.Query {
	return s.query("SetSettings", args{"spool": spool, "settings": settings})
}

// PendingMessage returns the columns of [Statements.Search], payload, metadata, source and carried
// id of a message that is not done.
func (s *Statements) PendingMessage(l Lookup) dialect.Query {
	return s.query("PendingMessage", args{"spool": l.Spool, "id": l.ID})
}

// DoneMessage returns the columns of [Statements.Done], payload, metadata, source and carried id of
// a message that is done: of the latest one with the id, unless the time of its creation is given.
func (s *Statements) DoneMessage(l Lookup, createdAt int64) dialect.Query {
	return s.query("DoneMessage", args{"spool": l.Spool, "id": l.ID, "created_at": createdAt})
}

// LockListed locks a message that was listed at a place until the transaction ends. It returns
// state, lane, created at, 1 if it is parked, 1 if it is due, due at, attempts, or nothing if the
// message is no longer there.
func (s *Statements) LockListed(spool int64, at Place) dialect.Query {
	return s.query("LockListed", args{"spool": spool, "state": at.State, "lane": at.Lane, "id": at.ID})
}

// The next three are for a message that LockListed has locked, so they need no token and no time of
// creation.

// SetDue changes the due time of a waiting message; 0 is now. A parked message gets all its
// attempts again.
func (s *Statements) SetDue(spool int64, r dialect.Ref, at int64) dialect.Query {
	values := locked(spool, r)
	values["at"] = at
	return s.query("SetDue", values)
}

// BuryWaiting copies a message to the dead letters.
func (s *Statements) BuryWaiting(spool int64, r dialect.Ref, b Burial) dialect.Query {
	values := locked(spool, r)
	values["subject"], values["error"], values["cause"] = b.Subject, b.Error, int(b.Cause)
	return s.query("BuryWaiting", values)
}

// RemoveMessage deletes a message.
func (s *Statements) RemoveMessage(spool int64, r dialect.Ref) dialect.Query {
	return s.query("RemoveMessage", locked(spool, r))
}

func locked(spool int64, r dialect.Ref) args {
	return args{"spool": spool, "state": r.State, "lane": r.Lane, "id": r.ID}
}

// DeleteDeadLetter deletes a dead letter, if it is open or one that is resolved is to be deleted
// too.
func (s *Statements) DeleteDeadLetter(id int64, resolved bool) dialect.Query {
	return s.query("DeleteDeadLetter", args{"id": id, "resolved": number(resolved)})
}

// Resolve marks a dead letter as dealt with, unless it is already marked.
func (s *Statements) Resolve(id int64, reason string) dialect.Query {
	return s.query("Resolve", args{"id": id, "reason": reason})
}

// RenameFailures gives the entries of a subject to another one.
func (s *Statements) RenameFailures(subject, renamed []byte) dialect.Query {
	return s.query("RenameFailures", args{"subject": subject, "renamed": renamed})
}

// Failures returns attempt, time, error and process of the latest entries of a subject, and of what
// it was before, oldest first.
func (s *Statements) Failures(subject, before []byte, most int) dialect.Query {
	return s.query("Failures", args{"subject": subject, "before": before, "most": most})
}
