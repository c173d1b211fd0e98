package admin

import (
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

var (
	// ErrNotFound is returned if there is no dead letter with that id: there never was one, or it
	// has been requeued or deleted, maybe by another operator at the same moment. It is also
	// returned for a message that does not exist or has been handled. And it is returned if there
	// is no outbox or queue of that name; then the error lists the existing ones.
	ErrNotFound = errors.New("not found")
	// ErrRefused means that this message or dead letter cannot be changed so, and the error says
	// why. A dead letter cannot be requeued: it is resolved, no outbox for letters of inboxes, no
	// topic, consumers that have handled the message would handle it again (see
	// [Again.OlderThanClaims]), its outbox or queue is gone, its metadata cannot be read, or an
	// edit that is not allowed or changes the ordering key. The letter stays. A replay ends with it
	// at a message that does not say from which topic it came. A message that is ready cannot be
	// rescheduled, since it may be in a handler already.
	ErrRefused = errors.New("refused")
	// ErrInvalid is returned for a request that is wrong in itself, such as a filter with mistakes:
	// the same request fails again.
	ErrInvalid = errors.New("invalid request")
)

// errResolved is returned for a letter that is resolved: another operator was faster.
var errResolved = fmt.Errorf("%w: dead letter is resolved already", ErrRefused)

// errOlderThanClaims is returned for a letter of an inbox that needs [Again.OlderThanClaims].
var errOlderThanClaims = fmt.Errorf("%w: it may be older than the claims, with which its other consumers tell that they have handled the message, so they might handle it again: if they may, say so, as OlderThanClaims of admin.Again, with --older-than-claims of postbox dead, or on its page",
	ErrRefused)

// failed says that it was here where something went wrong.
func failed(err error) error {
	return fmt.Errorf("admin: %w", dialect.HintAtPooler(dialect.HideAddress(err)))
}

// invalid makes an error an [ErrInvalid], with the same text.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalidError{err}
}

type invalidError struct{ error }

func (invalidError) Is(target error) bool { return target == ErrInvalid }

func (e invalidError) Unwrap() error { return e.error }
