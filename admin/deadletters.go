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

// DeadLetter is a message that is not tried again until an operator decides.
type DeadLetter struct {
	// ID identifies the dead letter. Later ones have higher ids, and no id is given out twice.
	ID int64
	// Consumer is the inbox's consumer that could not handle the message. It is empty for a message of an outbox.
	Consumer string
	// Outbox is the outbox or queue in the database that the message was in. It is empty for a message that came from a broker to an
	// inbox: such a message is requeued through the outbox that [Config.Outbox] names.
	Outbox string
	// Target is the same outbox or queue. It is the zero value for a message that came from a broker to an inbox.
	Target Target

	// Topic and MessageID are those of the message in an outbox or a queue. Of a message of an
	// inbox they say by what its consumer knows it: InboxConfig.Topic and MessageID.
	Topic     string
	MessageID string
	// SourceTopic and UUID are those with which a message of an inbox is published again: the topic
	// that its handler subscribed to, or "" if the message did not come through a router; and the
	// UUID that it carried, or else the name that InboxConfig.WithoutID gave it, or "". Only
	// [Admin.DeadLetter] reads them. They are "" for other messages, which keep topic and id.
	SourceTopic string
	UUID        string
	// Key is the ordering key, or "" for none.
	Key string

	// CreatedAt is when the message was written to the outbox; for an inbox, when the dead letter was written.
	CreatedAt time.Time
	// DiedAt is when the message became a dead letter, by the database's clock.
	DiedAt time.Time
	// Attempts is the number of attempts that failed since the message was written or last requeued.
	Attempts int
	// Cause says why the message died.
	Cause Cause
	// Error is the error of the last attempt.
	Error string
	// Shape is the error without what differs from one message to the next: see [Group.Shape].
	Shape string

	// ResolvedAt is when an operator resolved the letter, zero if it is not resolved. Resolution is the operator's reason.
	ResolvedAt time.Time
	Resolution string

	// Size of payload and metadata as they are stored, in bytes.
	Size int
	// Payload and Metadata are nil in the results of [Admin.DeadLetters]; [Admin.DeadLetter] reads them. Metadata
	// stays nil if it cannot be decoded; then Error says so.
	Payload  message.Payload
	Metadata message.Metadata
	// Failures is the history, oldest first, at most the 100 latest; only [Admin.DeadLetter] reads it. A message of an outbox
	// starts a new history when it is requeued; a message of an inbox continues its own.
	Failures []Failure
}

// Failure is one failed attempt.
type Failure struct {
	// Attempt counts from 1. An entry with 0 is no attempt. Its Error says what an operator did: requeue the message, resume
	// it, so that attempts count again from there, or bury it. Or it says why the message waits although no attempt is
	// counted; such an entry is written once, when the message begins to wait.
	Attempt int
	// At is when the attempt failed, by the database's clock.
	At    time.Time
	Error string
	// Process is the process that made the attempt, as host and process id.
	Process string
}

// DeadLetters lists the dead letters that match the filter, in the order of their ids. Pass the last id as
// [Filter.After] to get the next page; a page shorter than the limit is the last. Payload, metadata and failures
// are left out, so that memory is bounded however large the dead letters are: see [Admin.DeadLetter]. DeadLetters fails with [ErrNotFound] if the
// filter names an outbox or a queue that does not exist.
func (a *Admin) DeadLetters(ctx context.Context, filter Filter) ([]DeadLetter, error) {
	if err := errors.Join(filter.Validate(), filter.listable()); err != nil {
		return nil, fmt.Errorf("admin: list dead letters: %w", operate.Invalid(err))
	}
	if err := a.known(ctx, filter.Target); err != nil {
		return nil, err
	}
	return publicLetters(a.letters.List(ctx, filter.page()))
}

func publicLetters(found []*operate.DeadLetter, err error) ([]DeadLetter, error) {
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

// Requeue lets the message of a dead letter be handled again, with all its attempts, and deletes the letter, in
// one transaction; the comment of the package says how. The message comes after the messages of its key that are pending now.
//
// A message that came from a broker to an inbox is published again as it came, on
// [DeadLetter.SourceTopic] and with [DeadLetter.UUID]. What is not known of it, an [Again] says.
//
// Requeue fails with [ErrNotFound], [ErrResolved] or [ErrStuck], and then changes nothing. After
// [postbox.ErrCommitUnknown] it may or may not have happened. Call it again: [ErrNotFound] then means that it had happened.
func (a *Admin) Requeue(ctx context.Context, id int64, again ...Again) error {
	if err := a.letters.Requeue(ctx, id, the(again)); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox requeued a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

// Again says what an operator knows of messages that came from a broker to an inbox and are
// published again. It has no effect on those of outboxes and queues. Of several the last one
// counts.
type Again struct {
	// Topic is the topic on which they are published. Defaults to [DeadLetter.SourceTopic]; without
	// one, the error is [ErrNoTopic].
	Topic string
	// OlderThanClaims says that consumers that have handled the messages may handle them again.
	// Without it, a letter is refused with [ErrOlderThanClaims] whose own claim has been deleted,
	// since the claims of other consumers are as old.
	OlderThanClaims bool
}

func the(again []Again) operate.Again {
	if len(again) == 0 {
		return operate.Again{}
	}
	return operate.Again(again[len(again)-1])
}

// Resolve marks a dead letter as dealt with and keeps it, with the reason, for its retention. The reason is
// required, and is cut off at 4096 bytes. Resolve fails with [ErrNotFound], or with [ErrResolved] if another operator was faster; that
// operator's reason is then kept. A resolved letter cannot be requeued.
func (a *Admin) Resolve(ctx context.Context, id int64, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return fmt.Errorf("admin: resolve dead letter %d: %w", id, operate.Invalid(errNoReason))
	}
	if err := a.letters.Resolve(ctx, id, reason); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox resolved a dead letter", watermill.LogFields{"dead_letter": id, "reason": reason})
	return nil
}

// Delete deletes a dead letter, resolved or not, with its payload. It fails with [ErrNotFound]. An inbox still
// recognises the message as delivered for as long as it keeps claims.
func (a *Admin) Delete(ctx context.Context, id int64) error {
	if err := a.letters.Delete(ctx, id); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox deleted a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

func publicLetter(l *operate.DeadLetter) DeadLetter {
	letter := DeadLetter{
		ID: l.ID, Outbox: l.Spool, Target: Target{spool: l.Spool}, Topic: l.Topic, MessageID: l.MessageID, Key: l.Key,
		CreatedAt: l.CreatedAt, DiedAt: l.DiedAt, Attempts: l.Attempts, Cause: causeOf(l.Cause), Error: l.Error, Shape: l.Shape,
		ResolvedAt: l.ResolvedAt, Resolution: l.Resolution,
		Size: l.Size, Payload: l.Payload, Metadata: l.Metadata, SourceTopic: l.Source, UUID: l.CarriedID,
	}
	if l.Origin == dialect.OriginInbox {
		letter.Consumer = l.Consumer
	}
	return letter
}
