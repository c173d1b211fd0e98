package admin

import (
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

var (
	// ErrNotFound is returned if there is no dead letter with that id: there never was one, or it has been
	// requeued or deleted, maybe by another operator at the same moment. It is also returned for a message that does not exist or
	// has been handled. And it is returned if there is no outbox or queue of that name; then the error lists the existing ones.
	ErrNotFound = operate.ErrNotFound
	// ErrResolved is returned if a dead letter is already resolved, and so can be neither resolved nor requeued.
	ErrResolved = operate.ErrLetterResolved
	// ErrEdited is returned if the message of a dead letter has already been edited and requeued. It is an [ErrResolved], too.
	ErrEdited = operate.ErrLetterEdited
	// ErrKeyChanged is returned for an edit that changes the ordering key of a message.
	ErrKeyChanged = operate.ErrKeyChanged
	// ErrEditNotAllowed is returned by [Admin.EditAndRequeue] unless [Config.AllowEdit] is set.
	ErrEditNotAllowed = errors.New("editing is not allowed: set AllowEdit of admin.Config")
	// ErrStuck is returned if a dead letter cannot be requeued as it is, and the error says why: it
	// is that of an inbox and the outbox that [Config.Outbox] names does not exist, or the error is
	// [ErrNoTopic] or [ErrOlderThanClaims], its own outbox or queue does not exist any more, or its
	// metadata cannot be read. The letter stays.
	ErrStuck = operate.ErrLetterStuck
	// ErrOlderThanClaims is returned for a dead letter of an inbox that consumers would handle
	// again that have handled it: see [Again.OlderThanClaims]. It is an [ErrStuck], too.
	ErrOlderThanClaims = operate.ErrOlderThanClaims
	// ErrInvalid is returned for a request that is wrong in itself, such as a filter with mistakes: the same request fails again.
	ErrInvalid = operate.ErrInvalid
	// ErrReady is returned for an attempt to reschedule a message that is handled as soon as possible, and may be in a handler
	// already.
	ErrReady = operate.ErrReady
)

// failed says that it was here where something went wrong.
func failed(err error) error {
	return fmt.Errorf("admin: %w", dialect.HintAtPooler(dialect.HideAddress(err)))
}
