package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// requeueNote is the failure entry, with attempt 0, from which attempts count again.
const requeueNote = "requeued"

// Requeue makes a dead letter the last message of its spool. It deletes the letter in the same transaction. A letter
// can be deleted only once, so only one of two concurrent operators succeeds.
func (l *Letters) Requeue(ctx context.Context, id int64) error {
	var s *spool.Spool
	act := NewAct(ActRequeue, "").On("dead letter %d", id)
	err := l.change(ctx, act, id, "requeue", func(tx *sql.Tx) (err error) {
		s, err = l.requeue(ctx, tx, id)
		return err
	})
	if err == nil {
		l.announce(ctx, s)
	}
	return err
}

// requeue requeues a letter in a transaction, and returns the spool in which its message now waits.
func (l *Letters) requeue(ctx context.Context, tx *sql.Tx, id int64) (*spool.Spool, error) {
	letter, err := l.read(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	draft, err := letter.draft()
	if err != nil {
		return nil, err
	}
	s, found, err := l.spoolOf(ctx, tx, letter)
	if err != nil {
		return nil, err
	}
	if err := l.take(ctx, tx, letter); err != nil {
		return nil, err
	}
	return s, s.AppendTo(ctx, tx, spool.Run, found, []spool.Draft{draft})
}

// draft returns the message as it was first written.
func (l *DeadLetter) draft() (spool.Draft, error) {
	if !l.ResolvedAt.IsZero() {
		return spool.Draft{}, l.whyResolved()
	}
	if l.broken != nil {
		return spool.Draft{}, fmt.Errorf("%w: %w", ErrLetterStuck, l.broken)
	}
	return spool.Draft{Topic: l.Topic, MessageID: l.MessageID, Key: l.Key, Payload: l.Payload, Metadata: l.Metadata}, nil
}

// spoolOf returns the spool through which the letter is sent again, as the transaction sees it.
func (l *Letters) spoolOf(ctx context.Context, tx *sql.Tx, letter *DeadLetter) (s *spool.Spool, found spool.Found, err error) {
	name := l.outbox
	found.ID = letter.SpoolID
	if found.ID == 0 { // the message came from a broker to an inbox, and is published again
		found, err = spool.New(l.statements, name, 0).Find(ctx, tx, l.statements.FindSpool)
	} else {
		err = tx.QueryRowContext(ctx, l.statements.SpoolByID, found.ID).Scan(&name, &found.First, &found.Lanes)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil, found, l.noSpool(letter)
	}
	if err != nil {
		return nil, found, fmt.Errorf("find spool: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s = l.spools[found.ID]; s == nil || s.Name() != name {
		s = spool.New(l.statements, name, found.Lanes)
		l.spools[found.ID] = s
	}
	return s, found, nil
}

func (l *Letters) noSpool(letter *DeadLetter) error {
	if letter.SpoolID == 0 {
		return fmt.Errorf("%w: the inbox of consumer %q received it from a broker, and there is no outbox %q to publish it through again: set Outbox of admin.Config to one that a forwarder drains",
			ErrLetterStuck, letter.Consumer, l.outbox)
	}
	return fmt.Errorf("%w: its spool %d no longer exists", ErrLetterStuck, letter.SpoolID)
}

// take deletes the letter, and releases its message.
func (l *Letters) take(ctx context.Context, tx *sql.Tx, letter *DeadLetter) error {
	removed, err := spool.Affected(tx.ExecContext(ctx, l.statements.RemoveDeadLetter, letter.ID))
	if err != nil {
		return err
	}
	if removed == 0 {
		return l.taken(ctx, tx, letter.ID)
	}
	return l.release(ctx, tx, letter, requeueNote)
}

func (l *Letters) announce(ctx context.Context, s *spool.Spool) {
	if err := s.Announce(ctx, l.db); err != nil {
		l.logger.Debug("Postbox could not notify other processes, which will find the messages when they poll", watermill.LogFields{"err": spool.LogText(err)})
	}
}
