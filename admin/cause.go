package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// causeUnknown is the cause of a letter whose cause is not stored.
const causeUnknown = "unknown"

// causes are the words for [DeadLetter.Cause] in the order of their numbers in the database.
var causes = []string{causeUnknown, "attempts", "permanent", "crash", "unreadable", "operator"}

// causeOf returns the cause with a number. A later version may know more of them.
func causeOf(stored dialect.Cause) string {
	if stored < 0 || int(stored) >= len(causes) {
		return causeUnknown
	}
	return causes[stored]
}

// checkCause returns an error for a word that is no cause.
func checkCause(cause string) error {
	if cause == "" || slices.Contains(causes, cause) {
		return nil
	}
	return fmt.Errorf("cause: %.60q is not one of %s", cause, strings.Join(causes, ", "))
}

// numbersOf returns the range of numbers that a filter with this cause selects.
func numbersOf(cause string) [2]dialect.Cause {
	switch cause {
	case "":
		return [2]dialect.Cause{}
	case causeUnknown:
		return [2]dialect.Cause{-1, dialect.CauseUnknown}
	default:
		stored := dialect.Cause(slices.Index(causes, cause))
		return [2]dialect.Cause{stored, stored}
	}
}
