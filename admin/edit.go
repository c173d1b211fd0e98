package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// editedFrom is the key of the metadata in which a message that was edited names the letter that it
// came from.
const editedFrom = "postbox_edited_from"

// Edit is what replaces payload and metadata of a message.
type Edit struct {
	// Payload replaces the payload; nil keeps it. An empty payload that is not nil is a new
	// payload.
	Payload message.Payload
	// Metadata replaces all metadata; nil keeps it. The ordering key cannot be changed, and is
	// added if it is missing. Metadata that cannot be decoded has to be replaced. An edited message
	// has no unique key, so [postbox.UniqueKey] and [postbox.UniqueMode] are refused with
	// [ErrInvalid].
	Metadata message.Metadata
}

// EditAndRequeue lets a changed copy of a dead letter's message be handled, with all attempts. It
// does so in one transaction, like [Admin.Requeue]: a message of an outbox or a queue goes to the
// end of it, and a message of an inbox is published again, after its claim was removed. The message
// keeps its id, so the inboxes of other consumers, which have handled the first version, ignore it
// as long as they have claims. It names the letter in its metadata "postbox_edited_from".
//
// The letter keeps the first payload and metadata, and is resolved: [DeadLetter.Resolution] says
// that it was edited and by whom. So one of several operators who edit the same letter succeeds.
// The others get [ErrEdited], and their changes are dropped. If the edited message dies, edit its
// own letter.
//
// EditAndRequeue fails with [ErrEditNotAllowed] unless [Config.AllowEdit] is set, and with
// [ErrNotFound], [ErrResolved], [ErrCannotRequeue] or [ErrKeyChanged]; then nothing has changed.
// After [postbox.ErrCommitUnknown] it may or may not have happened. Call it again: [ErrEdited] then
// means that it, or another edit, had happened.
func (a *Admin) EditAndRequeue(ctx context.Context, id int64, edit Edit, again ...Again) error {
	if !a.config.AllowEdit {
		return fmt.Errorf("admin: edit dead letter %d: %w", id, ErrEditNotAllowed)
	}
	if edit.Payload == nil && edit.Metadata == nil {
		return fmt.Errorf("admin: edit dead letter %d: %w", id, invalid(errNoEdit))
	}
	var known Again
	if len(again) > 0 {
		known = again[len(again)-1]
	}
	if err := a.letters.EditAndRequeue(ctx, id, edit, known); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox edited and requeued a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

var errNoEdit = errors.New("payload and metadata are nil: set one of them, or use Requeue")

const (
	// editResolution begins the resolution of a letter whose message was edited.
	editResolution = "edited and requeued by "
	// editNote is the failure entry, with attempt 0, of the claim of an inbox.
	editNote = "edited and requeued"
)

// EditAndRequeue appends a changed copy of a letter's message to its spool, and keeps the letter
// with a resolution that says so, in one transaction.
func (l *letterStore) EditAndRequeue(ctx context.Context, id int64, edit Edit, again Again) error {
	var s *spool.Spool
	var into int64
	act := audit.NewAct(audit.ActEdit, "").On("dead letter %d", id).Noting(edit.describe())
	err := l.change(ctx, act, id, "edit", func(tx *sql.Tx) error {
		letter, err := l.read(ctx, tx, id)
		if err != nil {
			return err
		}
		draft, err := letter.edited(edit, again)
		if err != nil {
			return err
		}
		if s, into, err = l.spoolOf(ctx, tx, letter); err != nil {
			return err
		}
		if err := l.recent(ctx, tx, letter, again); err != nil {
			return err
		}
		err = l.resolve(ctx, tx, id, editResolution+l.audit.ActorIn(ctx))
		if errors.Is(err, ErrResolved) { // by another operator, since it was read
			if letter, readErr := l.read(ctx, tx, id); readErr == nil {
				err = letter.whyResolved()
			}
		}
		if err != nil {
			return err
		}
		if err := l.release(ctx, tx, letter, editNote); err != nil {
			return err
		}
		return s.AppendTo(ctx, tx, spool.Run, into, []spool.Draft{draft})
	})
	if err == nil {
		announce(ctx, l.db, s, l.logger)
	}
	return err
}

func (e Edit) describe() string {
	var parts []string
	if e.Payload != nil {
		parts = append(parts, fmt.Sprintf("new payload of %d bytes", len(e.Payload)))
	}
	if e.Metadata != nil {
		parts = append(parts, fmt.Sprintf("new metadata with %d values", len(e.Metadata)))
	}
	return strings.Join(parts, ", ")
}

// whyResolved returns the error for a letter that is resolved.
func (l *storedLetter) whyResolved() error {
	if strings.HasPrefix(l.Resolution, editResolution) {
		return ErrEdited
	}
	return ErrResolved
}

// edited returns the message with what the edit replaces. It keeps its id, so that inboxes that
// have handled it know it, and its place among the messages of its key.
func (l *storedLetter) edited(edit Edit, again Again) (spool.Draft, error) {
	if !l.ResolvedAt.IsZero() {
		return spool.Draft{}, l.whyResolved()
	}
	if edit.Metadata == nil && l.broken != nil {
		return spool.Draft{}, fmt.Errorf("%w: %w: replace the metadata, too", ErrCannotRequeue, l.broken)
	}
	draft := spool.Draft{Topic: l.Topic, MessageID: l.MessageID, Key: l.Key, Payload: l.Payload, Metadata: maps.Clone(l.Metadata)}
	if err := l.address(&draft, again); err != nil {
		return spool.Draft{}, err
	}
	if edit.Payload != nil {
		draft.Payload = edit.Payload
	}
	if edit.Metadata != nil {
		draft.Metadata = maps.Clone(edit.Metadata)
		if err := refuseUnique(draft.Metadata); err != nil {
			return spool.Draft{}, err
		}
		if err := l.keepKey(draft.Metadata); err != nil {
			return spool.Draft{}, err
		}
	}
	if draft.Metadata == nil {
		draft.Metadata = map[string]string{}
	}
	draft.Metadata[editedFrom] = strconv.FormatInt(l.ID, 10)
	return draft, invalid(draft.Check())
}

// refuseUnique returns an error for new metadata that asks for a unique key. The message is stored
// in any case, and the broker would get the metadata.
func refuseUnique(metadata map[string]string) error {
	for _, name := range []string{postbox.UniqueKey, postbox.UniqueMode} {
		if _, has := metadata[name]; has {
			return invalid(fmt.Errorf("a message that is edited cannot have a unique key: leave %s out of the metadata", name))
		}
	}
	return nil
}

// keepKey keeps the ordering key in new metadata.
func (l *storedLetter) keepKey(metadata map[string]string) error {
	before, had := l.Metadata[postbox.OrderingKey]
	if l.broken != nil && l.Key != "" {
		before, had = l.Key, true
	}
	now, has := metadata[postbox.OrderingKey]
	if has && now != before {
		return fmt.Errorf("%w: leave %s in the metadata as it is, %.60q", ErrKeyChanged, postbox.OrderingKey, before)
	}
	if had {
		metadata[postbox.OrderingKey] = before
	}
	return nil
}

// release lets the consumer of an inbox's letter handle the message again, with all its attempts.
// The claims of other consumers absorb it.
func (l *letterStore) release(ctx context.Context, tx *sql.Tx, letter *storedLetter, text string) error {
	if letter.Origin != dialect.OriginInbox {
		return nil // the new message has a new id, and so a history of its own
	}
	if _, err := tx.ExecContext(ctx, l.statements.RemoveClaim, letter.Subject); err != nil {
		return fmt.Errorf("remove claim: %w", err)
	}
	if err := note(ctx, tx, l.statements, letter.Subject, text); err != nil {
		return fmt.Errorf("record the requeue: %w", err)
	}
	return nil
}
