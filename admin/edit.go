package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/unique"
)

// editedFrom is the key of the metadata in which a message that was edited names the letter that it
// came from.
const editedFrom = "postbox_edited_from"

// edits says whether a requeued message is another one than the letter has.
func (a Again) edits() bool { return a.Payload != nil || a.Metadata != nil }

var (
	errEditNotAllowed = fmt.Errorf("%w: editing is not allowed: set AllowEdit of admin.Config", ErrRefused)
	errKeyChanged     = fmt.Errorf("%w: the ordering key cannot be changed, since the order of its messages would be lost", ErrRefused)
	errEdited         = fmt.Errorf("dead letter has been edited and requeued: %w", errResolved)
	errEditsMany      = errors.New("payload and metadata: they are those of one message: name its dead letter by ID")
)

const (
	// editResolution begins the resolution of a letter whose message was edited.
	editResolution = "edited and requeued by "
	// editNote is the failure entry, with attempt 0, of the claim of an inbox.
	editNote = "edited and requeued"
)

// edit appends a changed copy of a letter's message to its spool, and keeps the letter
// with a resolution that says so, in one transaction.
func (l *letterStore) edit(ctx context.Context, id int64, again Again) error {
	var s *spool.Spool
	var into int64
	act := audit.NewAct(audit.ActEdit, "").On("dead letter %d", id).Noting(again.describe())
	err := l.change(ctx, act, id, "edit", func(tx *sql.Tx) error {
		letter, err := l.read(ctx, tx, id)
		if err != nil {
			return err
		}
		draft, err := letter.edited(again)
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
		if errors.Is(err, errResolved) { // by another operator, since it was read
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

func (a Again) describe() string {
	var parts []string
	if a.Payload != nil {
		parts = append(parts, fmt.Sprintf("new payload of %d bytes", len(a.Payload)))
	}
	if a.Metadata != nil {
		parts = append(parts, fmt.Sprintf("new metadata with %d values", len(a.Metadata)))
	}
	return strings.Join(parts, ", ")
}

// whyResolved returns the error for a letter that is resolved.
func (l *storedLetter) whyResolved() error {
	if strings.HasPrefix(l.Resolution, editResolution) {
		return errEdited
	}
	return errResolved
}

// edited returns the message with what the operator replaces. It keeps its id, so that inboxes that
// have handled it know it, and its place among the messages of its key.
func (l *storedLetter) edited(again Again) (spool.Draft, error) {
	if !l.ResolvedAt.IsZero() {
		return spool.Draft{}, l.whyResolved()
	}
	if again.Metadata == nil && l.broken != nil {
		return spool.Draft{}, fmt.Errorf("%w: %w: replace the metadata, too", ErrRefused, l.broken)
	}
	draft := spool.Draft{Topic: l.Topic, MessageID: l.MessageID, Key: l.Key, Payload: l.Payload, Metadata: maps.Clone(l.Metadata)}
	if err := l.address(&draft, again); err != nil {
		return spool.Draft{}, err
	}
	if again.Payload != nil {
		draft.Payload = again.Payload
	}
	if again.Metadata != nil {
		draft.Metadata = maps.Clone(again.Metadata)
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
	for _, name := range []string{unique.Key, unique.Mode} {
		if _, has := metadata[name]; has {
			return invalid(fmt.Errorf("a message that is edited cannot have a unique key: leave %s out of the metadata", name))
		}
	}
	return nil
}

// keepKey keeps the ordering key in new metadata.
func (l *storedLetter) keepKey(metadata map[string]string) error {
	before, had := l.Metadata[postbox.MetadataOrderingKey]
	if l.broken != nil && l.Key != "" {
		before, had = l.Key, true
	}
	now, has := metadata[postbox.MetadataOrderingKey]
	if has && now != before {
		return fmt.Errorf("%w: leave %s in the metadata as it is, %.60q", errKeyChanged, postbox.MetadataOrderingKey, before)
	}
	if had {
		metadata[postbox.MetadataOrderingKey] = before
	}
	return nil
}

// release lets the consumer of an inbox's letter handle the message again, with all its attempts.
// The claims of other consumers absorb it.
func (l *letterStore) release(ctx context.Context, tx *sql.Tx, letter *storedLetter, text string) error {
	if letter.Origin != dialect.OriginInbox {
		return nil // the new message has a new number, and the failures stay with the letter
	}
	if _, err := tx.ExecContext(ctx, l.statements.RemoveClaim, letter.Subject); err != nil {
		return fmt.Errorf("remove claim: %w", err)
	}
	if err := note(ctx, tx, l.statements.Statements, letter.Subject, text); err != nil {
		return fmt.Errorf("record the requeue: %w", err)
	}
	return nil
}
