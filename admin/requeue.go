package admin

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// requeueNote begins the failure entry, with attempt 0, from which attempts count again.
const requeueNote = "requeued"

// Requeue makes a dead letter the last message of its spool. It deletes the letter in the same
// transaction. A letter can be deleted only once, so only one of two concurrent operators succeeds.
func (l *letterStore) Requeue(ctx context.Context, id int64, again Again) error {
	if again.edits() {
		return l.edit(ctx, id, again)
	}
	var s *spool.Spool
	act := audit.NewAct(audit.ActRequeue, "").On("dead letter %d", id)
	err := l.change(ctx, act, id, "requeue", func(tx *sql.Tx) (err error) {
		s, err = l.requeue(ctx, tx, id, again)
		return err
	})
	if err == nil {
		announce(ctx, l.db, s, l.logger)
	}
	return err
}

// requeue requeues a letter in a transaction, and returns the spool in which its message now waits.
func (l *letterStore) requeue(ctx context.Context, tx *sql.Tx, id int64, again Again) (*spool.Spool, error) {
	letter, err := l.read(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	draft, err := letter.draft(again)
	if err != nil {
		return nil, err
	}
	s, into, err := l.spoolOf(ctx, tx, letter)
	if err != nil {
		return nil, err
	}
	if err := l.recent(ctx, tx, letter, again); err != nil {
		return nil, err
	}
	if err := l.take(ctx, tx, letter); err != nil {
		return nil, err
	}
	return s, s.AppendTo(ctx, tx, spool.Run, into, []spool.Draft{draft})
}

var errNoSource = fmt.Errorf("%w: the message does not say from which topic it came, since it did not come through a router: name the topic of the broker on which it is published again, as Topic of admin.Again, with --to-topic of postbox dead, or on its page",
	ErrRefused)

// address says where and with which id a message of an inbox is published again: as it came, and
// not as its consumer knew it.
func (l *storedLetter) address(draft *spool.Draft, again Again) error {
	if l.Origin != dialect.OriginInbox {
		return nil
	}
	draft.Topic, draft.MessageID = cmp.Or(again.Topic, l.SourceTopic), l.UUID
	if draft.Topic == "" {
		return errNoSource
	}
	return invalid(draft.Check())
}

// draft returns the message as it was first written.
func (l *storedLetter) draft(again Again) (spool.Draft, error) {
	if !l.ResolvedAt.IsZero() {
		return spool.Draft{}, l.whyResolved()
	}
	if l.broken != nil {
		return spool.Draft{}, fmt.Errorf("%w: %w", ErrRefused, l.broken)
	}
	draft := spool.Draft{Topic: l.Topic, MessageID: l.MessageID, Key: l.Key, Payload: l.Payload, Metadata: l.Metadata}
	return draft, l.address(&draft, again)
}

// spoolOf returns the spool through which the letter is sent again, and its id, as the transaction
// sees it.
func (l *letterStore) spoolOf(ctx context.Context, tx *sql.Tx, letter *storedLetter) (s *spool.Spool, id int64, err error) {
	name, id := letter.Target.stored(), letter.SpoolID
	if id == 0 { // the message came from a broker to an inbox, and is published again
		name = l.outbox
		id, err = spool.New(l.statements.Statements, name).Find(ctx, tx, l.statements.FindSpool)
	}
	if errors.Is(err, sql.ErrNoRows) || name == "" {
		return nil, 0, l.noSpool(letter)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("find spool: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s = l.spools[id]; s == nil || s.Name() != name {
		s = spool.New(l.statements.Statements, name)
		l.spools[id] = s
	}
	return s, id, nil
}

func (l *letterStore) noSpool(letter *storedLetter) error {
	if letter.SpoolID == 0 {
		return fmt.Errorf("%w: the inbox of consumer %q received it from a broker, and there is no outbox %q to publish it through again: name one that a forwarder drains, with --through or Outbox of admin.Config",
			ErrRefused, letter.Consumer, l.outbox)
	}
	return fmt.Errorf("%w: its spool %d no longer exists", ErrRefused, letter.SpoolID)
}

// claimsDiffer is how long before its death a letter may have failed first: the claims of other
// consumers are about as old as that failure, and its own claim is as old as its death.
const claimsDiffer = 24 * time.Hour

// recent returns an error if the claims of other consumers may be gone that absorb a message of an
// inbox: the letter's own claim tells whether their retention has ended, unless that is much
// younger, as when the letter was requeued and has died again. It changes nothing, since an action
// on many letters skips those that it concerns.
func (l *letterStore) recent(ctx context.Context, tx *sql.Tx, letter *storedLetter, again Again) error {
	if letter.Origin != dialect.OriginInbox || again.OlderThanClaims {
		return nil
	}
	if letter.DiedAt.Sub(letter.failedAt) < claimsDiffer {
		err := tx.QueryRowContext(ctx, l.statements.FindClaim, letter.Subject).Scan(new(int))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	now, err := l.read(ctx, tx, letter.ID)
	switch {
	case err != nil: // such as another operator who was faster
		return err
	case !now.ResolvedAt.IsZero():
		return now.whyResolved()
	}
	return errOlderThanClaims
}

// take deletes the letter, and releases its message.
func (l *letterStore) take(ctx context.Context, tx *sql.Tx, letter *storedLetter) error {
	removed, err := spool.Affected(spool.Directly(ctx, tx, l.statements.DeleteDeadLetter(letter.ID, false)))
	if err != nil {
		return err
	}
	if removed == 0 {
		return l.taken(ctx, tx, letter.ID)
	}
	if letter.Origin != dialect.OriginInbox {
		return l.renumber(ctx, tx, letter)
	}
	return l.release(ctx, tx, letter, requeueNote)
}

// renumber keeps what failed of a message that gets a new number, under its message id.
func (l *letterStore) renumber(ctx context.Context, tx *sql.Tx, letter *storedLetter) error {
	subject := requeuedSubject(letter.Target, letter.MessageID)
	if err := spool.Run(ctx, tx, l.statements.RenameFailures(letter.Subject, subject)); err != nil {
		return fmt.Errorf("keep the failures: %w", err)
	}
	return note(ctx, tx, l.statements.Statements, subject, fmt.Sprintf("%s from dead letter %d", requeueNote, letter.ID))
}
