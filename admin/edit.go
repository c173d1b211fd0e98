package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// EditedFrom is the key of the metadata in which a message that was edited names the [DeadLetter.ID] that it came from.
const EditedFrom = operate.EditedFrom

// Edit is what replaces payload and metadata of a message.
type Edit struct {
	// Payload replaces the payload; nil keeps it. An empty payload that is not nil is a new payload.
	Payload message.Payload
	// Metadata replaces all metadata; nil keeps it. The ordering key cannot be changed, and is added if it is missing. Metadata that
	// cannot be decoded has to be replaced. An edited message has no unique key, so [postbox.UniqueKey] and [postbox.UniqueMode] are refused with
	// [ErrInvalid].
	Metadata message.Metadata
}

// EditAndRequeue lets a changed copy of a dead letter's message be handled, with all attempts. It
// does so in one transaction, like [Admin.Requeue]: a message of an outbox or a queue goes to the
// end of it, and a message of an inbox is published again, after its claim was removed. The message
// keeps its id, so the inboxes of other consumers, which have handled the first version, ignore it
// as long as they have claims. It names the letter in its metadata [EditedFrom].
//
// The letter keeps the first payload and metadata, and is resolved: [DeadLetter.Resolution] says that it was edited and by whom. So one of
// several operators who edit the same letter succeeds. The others get [ErrEdited], and their changes are dropped. If the edited message dies, edit its
// own letter.
//
// EditAndRequeue fails with [ErrEditNotAllowed] unless [Config.AllowEdit] is set, and with [ErrNotFound], [ErrResolved], [ErrStuck]
// or [ErrKeyChanged]; then nothing has changed. After [postbox.ErrCommitUnknown] it may or may not have happened. Call it again: [ErrEdited] then
// means that it, or another edit, had happened.
func (a *Admin) EditAndRequeue(ctx context.Context, id int64, edit Edit, again ...Again) error {
	if !a.config.AllowEdit {
		return fmt.Errorf("admin: edit dead letter %d: %w", id, ErrEditNotAllowed)
	}
	if edit.Payload == nil && edit.Metadata == nil {
		return fmt.Errorf("admin: edit dead letter %d: %w", id, operate.Invalid(errNoEdit))
	}
	if err := a.letters.EditAndRequeue(ctx, id, operate.Edit{Payload: edit.Payload, Metadata: edit.Metadata}, the(again)); err != nil {
		return failed(err)
	}
	a.logger.Info("Postbox edited and requeued a dead letter", watermill.LogFields{"dead_letter": id})
	return nil
}

var errNoEdit = errors.New("payload and metadata are nil: set one of them, or use Requeue")
