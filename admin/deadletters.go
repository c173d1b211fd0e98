package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// DeadLetter is a message that is not tried again until an operator says so.
type DeadLetter struct {
	// ID names the letter. Later letters have higher ones, and none is given out twice.
	ID int64
	// Consumer is the inbox's consumer that could not handle the message. It is empty for a message of an outbox.
	Consumer string
	// Outbox is the queue in the database that the message stood in, or, for an inbox, through which it can be
	// published again: empty where the inbox has none, so that the letter cannot be requeued.
	Outbox string

	Topic     string
	MessageID string
	// Key is the ordering key, empty without one.
	Key string

	// CreatedAt is when the message was written to the outbox; for an inbox, when the letter was.
	CreatedAt time.Time
	// DiedAt is when the message became a dead letter, by the database's clock.
	DiedAt time.Time
	// Attempts is the number of attempts that failed since the message was written, or requeued last.
	Attempts int
	// Error is the last attempt's.
	Error string

	// ResolvedAt is when an operator resolved the letter, zero if none has, and Resolution is the reason given.
	ResolvedAt time.Time
	Resolution string

	// Size of payload and metadata as they are stored, in bytes.
	Size int
	// Payload and Metadata are nil in the results of [Admin.DeadLetters]; [Admin.DeadLetter] reads them. Metadata
	// stays nil where it cannot be decoded, of which Error speaks then.
	Payload  message.Payload
	Metadata message.Metadata
	// Failures is the history, oldest first, at most the 100 latest; only [Admin.DeadLetter] reads it. An outbox's
	// message starts a new one when it is requeued, an inbox's goes on with its own.
	Failures []Failure
}

// Failure is one failed attempt.
type Failure struct {
	// Attempt counts from 1. An entry with 0 is no attempt. It tells in Error what an operator did: requeue the message, resume
	// it, so that attempts count again from there, or bury it. Or it tells why the message waits although no attempt is
	// counted, and is written once, when the message begins to wait.
	Attempt int
	// At is when it failed, by the database's clock.
	At    time.Time
	Error string
	// Process names who tried, as host and process id.
	Process string
}

// DeadLetters lists the dead letters that the filter chooses, in the order of their ids. Pass the last id as
// [Filter.After] to get the next page; a page shorter than the limit is the last. Payload, metadata and failures
// are left out, so that memory is bounded whatever the letters hold: see [Admin.DeadLetter].
func (a *Admin) DeadLetters(ctx context.Context, filter Filter) ([]DeadLetter, error) {
	if err := errors.Join(filter.Validate(), filter.listable()); err != nil {
		return nil, fmt.Errorf("admin: list dead letters: %w", err)
	}
	found, err := a.letters.List(ctx, filter.page())
	if err != nil {
		return nil, failed(err)
	}
	letters := make([]DeadLetter, len(found))
	for i, letter := range found {
		letters[i] = publicLetter(letter)
	}
	return letters, nil
}

// DeadLetter returns one dead letter with its payload, metadata and failure history, or [ErrNotFound].
func (a *Admin) DeadLetter(ctx context.Context, id int64) (*DeadLetter, error) {
	found, failures, err := a.letters.Get(ctx, id)
	if err != nil {
		return nil, failed(err)
	}
	letter := publicLetter(found)
	for _, failure := range failures {
		letter.Failures = append(letter.Failures, Failure(failure))
	}
	return &letter, nil
}

// Requeue gives the message of a dead letter another turn, with all attempts before it, and deletes the letter, in
// one transaction; the package's doc says how. It comes after the messages of its key that are pending now.
//
// It fails with [ErrNotFound], [ErrResolved] or [ErrStuck], and leaves everything as it was. With
// [postbox.ErrCommitUnknown] it may have happened or not: call it again, [ErrNotFound] then means that it had.
func (a *Admin) Requeue(ctx context.Context, id int64) error {
	if err := a.letters.Requeue(ctx, id); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox requeued a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

// RequeueAll requeues the unresolved dead letters that the filter chooses, in the order of their ids, and returns
// how many it did. [Filter.Limit] is the most to requeue, 0 for all; [Filter.Resolved] must be [ResolvedNo].
//
// Each letter is a transaction of its own, so what was counted stays requeued when a later one fails. Letters that
// another operator takes meanwhile are passed over. So are those that cannot be requeued, and the error, which is
// [ErrStuck], names up to ten of them. Any other error ends it. Letters written after it began are left alone: what
// is requeued and dies again does not go round in circles.
func (a *Admin) RequeueAll(ctx context.Context, filter Filter) (int, error) {
	if err := errors.Join(filter.Validate(), filter.requeueable()); err != nil {
		return 0, fmt.Errorf("admin: requeue dead letters: %w", err)
	}
	requeued, err := a.letters.RequeueAll(ctx, filter.chosen(), filter.Limit)
	if requeued > 0 {
		a.logger.Info("Postbox requeued dead letters", watermill.LogFields{"count": requeued})
	}
	if err != nil {
		return requeued, failed(fmt.Errorf("requeue dead letters: %w", err))
	}
	return requeued, nil
}

// Resolve marks a dead letter as dealt with and keeps it, with the reason, for its retention. The reason is
// required, and cut off at 4096 bytes. It fails with [ErrNotFound], or [ErrResolved] when another operator was faster, whose
// reason stays then. A resolved letter cannot be requeued.
func (a *Admin) Resolve(ctx context.Context, id int64, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("admin: resolve dead letter %d: %w", id, errNoReason)
	}
	if err := a.letters.Resolve(ctx, id, reason); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox resolved a dead letter", watermill.LogFields{"dead_letter": id, "reason": reason})
	return nil
}

// Delete deletes a dead letter, resolved or not, with its payload. It fails with [ErrNotFound]. An inbox still
// knows that the message was delivered, for as long as it keeps claims.
func (a *Admin) Delete(ctx context.Context, id int64) error {
	if err := a.letters.Delete(ctx, id); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox deleted a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

func publicLetter(l *operate.DeadLetter) DeadLetter {
	letter := DeadLetter{
		ID: l.ID, Outbox: l.Spool, Topic: l.Topic, MessageID: l.MessageID, Key: l.Key,
		CreatedAt: l.CreatedAt, DiedAt: l.DiedAt, Attempts: l.Attempts, Error: l.Error,
		ResolvedAt: l.ResolvedAt, Resolution: l.Resolution,
		Size: l.Size, Payload: l.Payload, Metadata: l.Metadata,
	}
	if l.Origin == dialect.OriginInbox {
		letter.Consumer = l.Consumer
	}
	return letter
}
