package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Status says what a message waits for.
//
// Other systems have the states PENDING, SENT (or PROCESSED) and FAILED. The first four states here
// correspond to PENDING, and Done to SENT. FAILED corresponds to a [DeadLetter].
type Status string

const (
	// Ready is a message that is handled as soon as possible, and may be in a handler now.
	Ready Status = "READY"
	// Scheduled is a message that waits for the time that its producer, or an operator, asked for.
	// It holds no other message back. From that time on it is handled as soon as possible.
	Scheduled Status = "SCHEDULED"
	// Retrying is a message that failed and waits for its next attempt, or is in it. Later messages
	// of its key wait for it.
	Retrying Status = "RETRYING"
	// Parked is a message that has used up its attempts, in a queue with Park in queue.Config. It
	// waits for an operator, and later messages of its key wait for it.
	Parked Status = "PARKED"
	// Done is a message that was handled and is in the history.
	Done Status = "DONE"
)

// Message is a message of an outbox or a queue that is pending, or that is done and kept in the
// history.
type Message struct {
	// ID identifies the message in its outbox or queue. A restored database may reuse it.
	ID     int64
	Status Status
	// Topic is the topic of an outbox's message. For a message of a queue it is the queue's name.
	Topic     string
	MessageID string
	// Key is the ordering key, or "" for none.
	Key string
	// Attempts is the number of attempts that failed since the message was written, or since an
	// operator gave it all attempts again. For a message that is done, it is the number of all
	// attempts.
	Attempts  int
	CreatedAt time.Time
	// DueAt is the time from which the message may be handled. It is zero for a message that is
	// parked or done.
	DueAt time.Time
	// DoneAt is when the message was done; it is zero for a pending one. All times are of the
	// database's clock.
	DoneAt time.Time
	// Took is how long a message that is done was handled by the attempt that succeeded: from the
	// call of the handler or publisher until it was settled, and for an inbox until its handler had
	// returned. 0: that is not known.
	Took time.Duration
	// Process has handled a message that is done, as host and process id.
	Process string
	// Size of payload and metadata as they are stored, in bytes.
	Size int
	// Omitted is the number of further bytes that the history of an inbox has not kept, because the
	// message was larger than InboxConfig.HistoryPayload. Then Payload is empty, and so is Metadata
	// if it alone was larger. Such a message cannot be replayed.
	Omitted int
	// Cursor is the position of the message in the list. A filter with this position in After
	// returns the messages that follow.
	Cursor string

	// Payload and Metadata are nil in lists; [Admin.Message] reads them. Metadata stays nil if it
	// cannot be decoded.
	Payload  message.Payload
	Metadata message.Metadata
	// Failures is the history, oldest first, at most the 100 latest, and as many from before a
	// requeue. Only [Admin.Message] reads it.
	Failures []Failure
	// SourceTopic and UUID are those with which a message of an inbox is replayed: see
	// [DeadLetter.SourceTopic]. Only [Admin.Message] reads them.
	SourceTopic, UUID string
	// UniqueKey is the unique key under which the message waits; only [Admin.Message] reads it. The
	// tables have a hash of each unique key. So of a message that is named by its id, it is found
	// only if it is also the ordering key, as it is unless the producer has set another one.
	UniqueKey string
}

// Messages lists the messages that match the filter, and returns the cursor of the next page, which
// is empty after the last one. Payload, metadata and failures are left out, so that memory is
// bounded however large the messages are: see [Admin.Message].
//
// Of the pending messages, ready ones come first, then scheduled ones, then failed ones. Each of
// these groups is sorted by lane, and within a lane by the order of writing. Messages may change
// their state while pages are read, and they only move forward in this order. So a message may
// appear twice, but no message that is pending all the while is missed. A page comes soon, however
// long the list is: it looks at up to 10,000 messages. If few of them match, the page is short or
// empty, and the list goes on all the same. It costs two statements, on MariaDB three.
//
// With the status [Done], Messages lists the history, the latest first; its pages are short only at
// the end. A history is kept if the queue is configured with one, or if [Admin.ChangeSettings] has
// turned it on. It fails with [ErrNotFound] if there is no such outbox, queue or inbox.
func (a *Admin) Messages(ctx context.Context, filter Filter) (messages []Message, next string, err error) {
	l := pendingMessages
	if filter.Status == Done {
		l = doneMessages
	}
	limit, err := filter.listed(l)
	chosen, more := filter.ofMessages()
	if err := errors.Join(err, more); err != nil {
		return nil, "", fmt.Errorf("admin: list messages of %s: %w", filter.Target, invalid(err))
	}
	chosen.Limit = limit
	var found foundMessages
	if name := filter.Target.stored(); filter.Status == Done {
		var page []*storedMessage
		page, err = a.operator.Done(ctx, name, chosen)
		found = paged(page, limit)
	} else {
		found, err = a.operator.Messages(ctx, name, chosen)
	}
	if err != nil {
		return nil, "", failed(err)
	}
	messages = make([]Message, len(found.Messages))
	for i, m := range found.Messages {
		messages[i] = m.Message
	}
	if found.Next != nil {
		next = string(cursorOf(*found.Next))
	}
	return messages, next, nil
}

// Message returns one message, pending or done, with its payload, metadata and failure history: the
// one with the filter's Target and ID, or the one of an outbox that waits under the filter's Topic
// and UniqueKey.
//
// It returns [ErrNotFound] if there never was such a message, if it is a dead letter, or if it is
// done and not kept. Of a unique key [ErrNotFound] says that the key is free.
func (a *Admin) Message(ctx context.Context, filter Filter) (*Message, error) {
	target, topic, key := filter.Target, filter.Topic, filter.UniqueKey
	if key != "" {
		filter.Topic, filter.UniqueKey = "", ""
	}
	err := filter.alone(pendingMessages)
	switch {
	case err != nil:
	case key == "" && filter.ID == 0:
		err = invalid(errors.New("id: it is missing: name the message by it, or by its topic and unique key"))
	case key == "":
		return publicWithFailures(a.operator.Message(ctx, target.stored(), filter.ID))
	default:
		if err = checkUnique(filter, topic); err == nil {
			return publicWithFailures(a.operator.UniqueMessage(ctx, target.stored(), topic, key))
		}
	}
	return nil, failed(fmt.Errorf("read a message of %s: %w", target, err))
}

// checkUnique returns an error for a filter that cannot have a unique key.
func checkUnique(filter Filter, topic string) error {
	err := checkName("topic", topic)
	switch {
	case filter.ID != 0:
		err = errors.Join(err, errors.New("unique key: leave it out, or the id"))
	case topic == "":
		err = errors.Join(err, errors.New("topic: it is missing: a unique key belongs to a topic"))
	case filter.Target.Kind == spool.KindQueue || filter.Target.Kind == spool.KindInbox:
		err = errors.Join(err, fmt.Errorf("%s has no unique keys: name an outbox", filter.Target))
	}
	return invalid(err)
}

func publicWithFailures(found *storedMessage, failures []Failure, err error) (*Message, error) {
	if err != nil {
		return nil, failed(err)
	}
	found.Failures = failures
	return &found.Message, nil
}

// messageStates are the states, the first and the last, of a status.
var messageStates = map[Status]struct {
	states [2]int
	parked operatorsql.Parked
}{
	"":        {[2]int{dialect.StateReady, dialect.StateRetrying}, operatorsql.ParkedAny},
	Ready:     {[2]int{dialect.StateReady, dialect.StateReady}, operatorsql.ParkedAny},
	Scheduled: {[2]int{dialect.StateScheduled, dialect.StateScheduled}, operatorsql.ParkedAny},
	Retrying:  {[2]int{dialect.StateRetrying, dialect.StateRetrying}, operatorsql.ParkedNo},
	Parked:    {[2]int{dialect.StateRetrying, dialect.StateRetrying}, operatorsql.ParkedOnly},
	Done:      {[2]int{operatorsql.StateDone, operatorsql.StateDone}, operatorsql.ParkedAny},
}

// ofMessages is the filter as statements about messages take it.
func (f Filter) ofMessages() (operatorsql.MessageFilter, error) {
	states, known := messageStates[f.Status]
	after, err := cursor(f.After).parse(states.states[0], states.states[1])
	if !known {
		err = errors.Join(err, fmt.Errorf("status: %.60q is not one of %s, %s, %s and %s, or %s for the history", f.Status, Ready, Scheduled, Retrying, Parked, Done))
	}
	chosen := operatorsql.MessageFilter{
		Topic: f.Topic, Key: f.Key, MessageID: f.MessageID, States: states.states, Parked: states.parked, After: after,
		ErrorText: f.ErrorText, MinAttempts: f.MinAttempts,
	}
	if f.Status == Done {
		chosen.States, chosen.DoneFrom, chosen.DoneBefore = [2]int{}, micros(f.From), micros(f.Until)
	} else {
		chosen.CreatedFrom, chosen.CreatedBefore = micros(f.From), micros(f.Until)
	}
	return chosen, err
}

// statusOf is the status of a message in a state that is due at a time.
func statusOf(state int, at int64) Status {
	switch {
	case state == dialect.StateReady:
		return Ready
	case state == dialect.StateScheduled:
		return Scheduled
	case state == operatorsql.StateDone:
		return Done
	case at >= dialect.ParkedFrom:
		return Parked
	default:
		return Retrying
	}
}

// Reschedule makes a waiting message due at the given time, the zero time for now, and returns how
// many it has changed. If its drainer may have the message in memory, the drainer is notified.
func (o *operator) Reschedule(ctx context.Context, name string, id int64, at time.Time) (changed int, err error) {
	act := rescheduling(name, at).On("message %d", id)
	err = o.change(ctx, fmt.Sprintf("reschedule message %d of", id), act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		act.Affected = 0
		found, err := o.lock(ctx, tx, s, id)
		switch {
		case err != nil:
			return false, err
		case found.ref.State == dialect.StateReady && at.IsZero():
			return true, nil // its topic may have an outage
		case found.ref.State == dialect.StateReady:
			return false, fmt.Errorf("%w: it is ready, so it is handled as soon as possible, and may be running now; only a message that is scheduled, retrying or parked can be rescheduled",
				ErrRefused)
		}
		act.Affected = 1
		return o.reschedule(ctx, tx, s, found, at)
	})
	return act.Affected, err
}

// rescheduling is the action of an operator for whom no time means now.
func rescheduling(name string, at time.Time) *audit.Act {
	if at.IsZero() {
		return audit.NewAct(audit.ActRunNow, name)
	}
	return audit.NewAct(audit.ActReschedule, name).Noting("at " + at.UTC().Format(time.RFC3339))
}

// reschedule sets the time of a locked message, and reports whether its drainer should notice: it
// may have a due message in memory, and a message that has failed may have met an outage, whose
// pause ends when a drainer notices.
func (o *operator) reschedule(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked, at time.Time) (notice bool, err error) {
	now := at.IsZero()
	return !now && found.due || now && found.ref.State == dialect.StateRetrying, o.due(ctx, tx, s, found, micros(at))
}

// Bury makes a ready or waiting message a dead letter. The transaction that removes the message
// decides. If it is that of the drainer, the message has been handled. If it is this one, the
// writes of a handler in a transaction of its own are rolled back. A drainer that has the message
// in memory notices the spool's new version, and forgets the message.
func (o *operator) Bury(ctx context.Context, name string, id int64, reason string) error {
	act := audit.NewAct(audit.ActBury, name).On("message %d", id).Noting(reason)
	act.Affected = 1
	return o.change(ctx, fmt.Sprintf("bury message %d of", id), act, func(tx *sql.Tx, s *spool.Spool) (bool, error) {
		found, err := o.lock(ctx, tx, s, id)
		if err != nil {
			return false, err
		}
		return o.bury(ctx, tx, s, found, reason)
	})
}

// bury makes a locked message a dead letter, and reports whether its drainer should notice.
func (o *operator) bury(ctx context.Context, tx *sql.Tx, s *spool.Spool, found locked, reason string) (notice bool, err error) {
	ref := found.ref
	burial := operatorsql.Burial{Subject: spool.MessageSubject(ref.ID, ref.CreatedAt), Error: spool.ErrorText(errors.New(buryNote + reason)), Cause: dialect.CauseOperator}
	if err := spool.Buried(spool.Directly(ctx, tx, o.statements.BuryWaiting(s.ID(), ref, burial))); err != nil {
		return false, err
	}
	if err := note(ctx, tx, o.statements.Statements, burial.Subject, burial.Error); err != nil {
		return false, err
	}
	removed, err := changed(spool.Directly(ctx, tx, o.statements.RemoveMessage(s.ID(), ref)))
	if err == nil && !removed {
		err = ErrNotFound
	}
	// A drainer may have the message in memory, or must read the messages behind it.
	return found.due || ref.State != dialect.StateScheduled, err
}

// locked is a message that no other transaction changes or removes while this one lasts.
type locked struct {
	ref      dialect.Ref
	parked   bool
	due      bool  // a drainer may have it in memory
	at       int64 // when it is due; of no meaning if it is ready
	attempts int
}

// lockTries is how often a message is looked for that moves while a statement waits for it.
const lockTries = 3

// lock finds a message and locks it. A message that fails meanwhile moves to another place, where
// it is found the next time.
func (o *operator) lock(ctx context.Context, tx *sql.Tx, s *spool.Spool, id int64) (found locked, err error) {
	for range lockTries {
		var m *storedMessage
		if m, err = o.read(ctx, tx, o.statements.PendingMessage(operatorsql.Lookup{Spool: s.ID(), ID: id})); err != nil {
			return found, err
		}
		if found, err = o.lockAt(ctx, tx, s, m.Place); !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return found, err
}

// lockListed locks a message where it was listed, or where it is now.
func (o *operator) lockListed(ctx context.Context, tx *sql.Tx, s *spool.Spool, at operatorsql.Place) (locked, error) {
	found, err := o.lockAt(ctx, tx, s, at)
	if errors.Is(err, ErrNotFound) {
		return o.lock(ctx, tx, s, at.ID)
	}
	return found, err
}

func (o *operator) lockAt(ctx context.Context, tx *sql.Tx, s *spool.Spool, at operatorsql.Place) (locked, error) {
	query, found := o.statements.LockListed(s.ID(), at), locked{ref: dialect.Ref{ID: at.ID}}
	err := tx.QueryRowContext(ctx, query.Text, query.Args...).Scan(
		&found.ref.State, &found.ref.Lane, &found.ref.CreatedAt, &found.parked, &found.due, &found.at, &found.attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return found, ErrNotFound
	}
	return found, err
}

// due sets the time of a message in microseconds, 0 for now. A parked message gets all its attempts
// again.
func (o *operator) due(ctx context.Context, tx *sql.Tx, s *spool.Spool, m locked, at int64) error {
	err := spool.Run(ctx, tx, o.statements.SetDue(s.ID(), m.ref, at))
	if err != nil || !m.parked {
		return err
	}
	return note(ctx, tx, o.statements.Statements, spool.MessageSubject(m.ref.ID, m.ref.CreatedAt), resumeNote)
}

// note records an action of an operator among the failures of a subject, with attempt 0.
func note(ctx context.Context, tx *sql.Tx, statements *dialect.Statements, subject []byte, text string) error {
	return spool.Run(ctx, tx, statements.InsertFailure(dialect.Failure{Subject: subject, Error: text, Process: spool.ProcessName()}))
}
