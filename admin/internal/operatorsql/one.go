package operatorsql

import (
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// deadLetterColumns are the columns of DeadLetter and DeadLetters. Payload and metadata are left
// out: each may have megabytes, and a page has many letters.
const deadLetterColumns = `d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE({length}(d.payload), 0) + {length}(d.metadata) AS size`

// The columns of a message that is listed. After the times of its creation and of when it may be
// handled, or was done, come its size and the number of bytes that the history has not kept of it.
const (
	pendingColumns = `m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, ` + dueAt + `,
	COALESCE({length}(m.payload), 0) + {length}(m.metadata) AS size, 0 AS omitted, '' AS process`
	doneColumns = `3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE({length}(h.payload), 0) + {length}(h.metadata) AS size, h.omitted, COALESCE(h.process, '')`
)

// StateDone marks messages of the history in lists of messages; it is never stored.
const StateDone = 3

// dueAt is the time from which a message may be handled. For a ready message it is the creation
// time, because such a message may have no time of its own.
const dueAt = `CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END`

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

// one sets the statements about one spool, message or dead letter.
func (s *Statements) one() {
	// Counts all messages in one snapshot, so that a message that moves meanwhile is counted once.
	s.Account = s.Text(`
SELECT (SELECT COUNT(*) FROM {messages} m WHERE m.spool = s.id),
       (SELECT COUNT(*) FROM {history} h WHERE h.spool = s.id),
       (SELECT COUNT(*) FROM {dead_letters} d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NULL),
       (SELECT COUNT(*) FROM {dead_letters} d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NOT NULL)
FROM {spools} s
WHERE s.id = ?`)

	s.LaneHolders = s.Text(`
SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(w.expires_at, 0), l.suspect, CASE WHEN w.expires_at > {now} THEN 1 ELSE 0 END
FROM {lanes} l
LEFT JOIN {members} w ON w.spool = l.spool AND w.holder = l.holder
WHERE l.spool = ?
ORDER BY l.lane`)

	s.ChangeSpool = s.Text(`
UPDATE {spools} SET version = version + 1 WHERE id = ?`)

	// Locks the row without the rights that SELECT … FOR UPDATE needs on MySQL.
	s.LockSettings = s.Text(`
UPDATE {spools} SET settings = settings WHERE id = ?`)

	s.setSettings = s.Named(`
UPDATE {spools} SET settings = :settings WHERE id = :spool AND settings <> :settings`)

	// On PostgreSQL, where the id is the last column of the primary key, that takes a descent for
	// each state and lane.
	s.pendingMessage = s.Named(`
SELECT ` + pendingColumns + `, m.payload, m.metadata, '', m.message_id
FROM {messages} m
WHERE m.spool = :spool AND m.id = :id{any lane}`)

	// Returns the latest one, if the database has issued the id again, unless a time is given.
	s.doneMessage = s.Named(`
SELECT ` + doneColumns + `, h.payload, h.metadata, COALESCE(h.source_topic, ''), COALESCE(h.carried_id, h.message_id)
FROM {history} h
WHERE h.spool = :spool AND h.id = :id AND ({int :created_at} = 0 OR h.created_at = :created_at)
ORDER BY h.created_at DESC
LIMIT 1`)

	// A drainer that settles the message waits for the transaction that has locked it, and vice
	// versa.
	s.lockListed = s.Named(`
SELECT m.state, m.lane, m.created_at, CASE WHEN ` + dialect.IsParked + ` THEN 1 ELSE 0 END, CASE WHEN m.available_at <= {now} THEN 1 ELSE 0 END, m.available_at, m.attempts
FROM {messages} m {by id}
WHERE m.spool = :spool AND m.state = :state AND m.lane = :lane AND m.id = :id {for update}`)

	// A parked message has no attempt left, and gets all of them again. MySQL assigns columns in
	// this order, and later assignments see the new values.
	startOver := fmt.Sprintf("CASE WHEN available_at >= %d THEN 0 ELSE ", int64(dialect.ParkedFrom))
	s.setDue = s.Named(`
UPDATE {messages} {by id} SET
	attempts = ` + startOver + `attempts END,
	starts = ` + startOver + `starts END,
	available_at = CASE WHEN {int :at} > 0 THEN {int :at} WHEN available_at > {now} THEN {now} ELSE available_at END
WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id`)

	s.buryWaiting = s.Named(`
INSERT INTO {dead_letters} (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, {blob :subject}, {text :error}, {int :cause}, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, {now}, m.attempts
FROM {messages} m
WHERE m.spool = :spool AND m.state = :state AND m.lane = :lane AND m.id = :id`)

	s.removeMessage = s.Named(`
DELETE FROM {messages} WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id`)

	s.MessageOfUniqueKey = s.Text(`
SELECT id, created_at FROM {unique_keys} WHERE digest = ?`)

	s.DeadLetter = s.Text(`
SELECT ` + deadLetterColumns + `, d.payload, d.metadata, COALESCE(d.source_topic, ''), COALESCE(d.carried_id, d.message_id)
FROM {dead_letters} d
LEFT JOIN {spools} s ON s.id = d.spool
WHERE d.id = ?`)

	// Walks the primary key.
	s.letterBehind = s.Named(`
SELECT d.id FROM {dead_letters} d ORDER BY d.id DESC LIMIT 1 OFFSET {unseen :later}`)

	s.deleteDeadLetter = s.Named(`
DELETE FROM {dead_letters} WHERE id = :id AND (resolved_at IS NULL OR :resolved = 1)`)

	s.resolve = s.Named(`
UPDATE {dead_letters} SET resolved_at = {now}, resolution = :reason WHERE id = :id AND resolved_at IS NULL`)

	s.failures = s.Named(`
SELECT attempt, failed_at, error, process
FROM (SELECT id, attempt, failed_at, error, process FROM {failures} WHERE subject = :subject ORDER BY id DESC LIMIT :most) f
ORDER BY id`)
}

// SetSettings stores the settings of a spool. It changes no row if they are equal to the stored
// ones.
func (s *Statements) SetSettings(spool int64, settings string) dialect.Query {
	return s.setSettings.With(args{"spool": spool, "settings": settings})
}

// PendingMessage returns the columns of [Statements.Search], payload, metadata, source and carried
// id of a message that is not done.
func (s *Statements) PendingMessage(l Lookup) dialect.Query {
	return s.pendingMessage.With(args{"spool": l.Spool, "id": l.ID})
}

// DoneMessage returns the columns of [Statements.Done], payload, metadata, source and carried id of
// a message that is done: of the latest one with the id, unless the time of its creation is given.
func (s *Statements) DoneMessage(l Lookup, createdAt int64) dialect.Query {
	return s.doneMessage.With(args{"spool": l.Spool, "id": l.ID, "created_at": createdAt})
}

// LockListed locks a message that was listed at a place until the transaction ends. It returns
// state, lane, created at, 1 if it is parked, 1 if it is due, due at, attempts, or nothing if the
// message is no longer there.
func (s *Statements) LockListed(spool int64, at Place) dialect.Query {
	return s.lockListed.With(args{"spool": spool, "state": at.State, "lane": at.Lane, "id": at.ID})
}

// The next three are for a message that LockListed has locked, so they need no token and no time of
// creation.

// SetDue changes the due time of a waiting message; 0 is now. A parked message gets all its
// attempts again.
func (s *Statements) SetDue(spool int64, r dialect.Ref, at int64) dialect.Query {
	values := locked(spool, r)
	values["at"] = at
	return s.setDue.With(values)
}

// BuryWaiting copies a message to the dead letters.
func (s *Statements) BuryWaiting(spool int64, r dialect.Ref, b Burial) dialect.Query {
	values := locked(spool, r)
	values["subject"], values["error"], values["cause"] = b.Subject, b.Error, int(b.Cause)
	return s.buryWaiting.With(values)
}

// RemoveMessage deletes a message.
func (s *Statements) RemoveMessage(spool int64, r dialect.Ref) dialect.Query {
	return s.removeMessage.With(locked(spool, r))
}

func locked(spool int64, r dialect.Ref) args {
	return args{"spool": spool, "state": r.State, "lane": r.Lane, "id": r.ID}
}

// DeleteDeadLetter deletes a dead letter, if it is open or one that is resolved is to be deleted
// too.
func (s *Statements) DeleteDeadLetter(id int64, resolved bool) dialect.Query {
	return s.deleteDeadLetter.With(args{"id": id, "resolved": number(resolved)})
}

// Resolve marks a dead letter as dealt with, unless it is already marked.
func (s *Statements) Resolve(id int64, reason string) dialect.Query {
	return s.resolve.With(args{"id": id, "reason": reason})
}

// LetterBehind returns the id of the dead letter with so many later ones, or no row if there are
// fewer.
func (s *Statements) LetterBehind(later int) dialect.Query {
	return s.letterBehind.With(args{"later": later})
}

// Failures returns attempt, time, error and process of the latest entries of a subject, oldest
// first.
func (s *Statements) Failures(subject []byte, most int) dialect.Query {
	return s.failures.With(args{"subject": subject, "most": most})
}
