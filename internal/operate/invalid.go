package operate

import "errors"

// ErrInvalid is what errors about the request of an operator are, in contrast to those of the database.
var ErrInvalid = errors.New("invalid request")

// Invalid makes an error an [ErrInvalid], with the same text.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return invalidError{err}
}

type invalidError struct{ error }

func (invalidError) Is(target error) bool { return target == ErrInvalid }

func (e invalidError) Unwrap() error { return e.error }
