package postbox

import (
	"fmt"

	"github.com/google/uuid"
)

// NewMessageID returns a UUIDv7. It is unique like any UUID, and ordered by time, so that the
// claims of an inbox stay close together in their index. With random UUIDs that index costs several
// times the writes.
func NewMessageID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(fmt.Sprintf("postbox: cannot read random bytes for a message id: %s", err)) // crypto/rand never fails on a running system
	}
	return id.String()
}
