package admin

import (
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

var (
	// ErrNotFound is returned where there is no dead letter with that id: there never was one, or it has been
	// requeued or deleted, maybe by another operator at the same moment. The same goes for messages, which are handled
	// besides. It is returned too where there is no outbox or queue of a name; then the error says which there are.
	ErrNotFound = operate.ErrNotFound
	// ErrResolved is returned where a dead letter is resolved already and so can be neither resolved nor requeued.
	ErrResolved = operate.ErrLetterResolved
	// ErrStuck is returned where a dead letter cannot be requeued as it is, and the error says why: its inbox has no
	// outbox, its outbox is not there any more, or its metadata cannot be read. The letter stays.
	ErrStuck = operate.ErrLetterStuck
	// ErrReady is returned where a message is to be rescheduled that is handled as soon as possible, and may be in a handler
	// already.
	ErrReady = operate.ErrReady
)

// failed says that it was here where something went wrong.
func failed(err error) error {
	return fmt.Errorf("admin: %w", dialect.HintAtPooler(dialect.HideAddress(err)))
}
