package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Cause says why a message became a dead letter.
type Cause string

const (
	// CauseAttempts is for a message whose attempts are used up.
	CauseAttempts Cause = "attempts"
	// CausePermanent is for a message whose error says that no retry can cure it: [postbox.Permanent], or the answer of a broker.
	CausePermanent Cause = "permanent"
	// CauseCrash is for a message that was handed out too often without an end: it crashes its process.
	CauseCrash Cause = "crash"
	// CauseUnreadable is for a message that cannot be decoded.
	CauseUnreadable Cause = "unreadable"
	// CauseOperator is for a message that [Admin.Bury] has buried.
	CauseOperator Cause = "operator"
	// CauseUnknown is for a letter that was written by a version that did not store the cause.
	CauseUnknown Cause = "unknown"
)

// causes are the causes in the order of their numbers in the database.
var causes = []Cause{CauseUnknown, CauseAttempts, CausePermanent, CauseCrash, CauseUnreadable, CauseOperator}

// causeOf returns the cause with a number. A later version may know more of them.
func causeOf(stored dialect.Cause) Cause {
	if stored < 0 || int(stored) >= len(causes) {
		return CauseUnknown
	}
	return causes[stored]
}

// validate returns an error for a word that is no cause.
func (c Cause) validate() error {
	if c == "" || slices.Contains(causes, c) {
		return nil
	}
	words := make([]string, len(causes))
	for i, known := range causes {
		words[i] = string(known)
	}
	return fmt.Errorf("cause: %.60q is not one of %s", string(c), strings.Join(words, ", "))
}

// chosen returns the range of numbers that a filter with this cause selects.
func (c Cause) chosen() [2]dialect.Cause {
	switch c {
	case "":
		return [2]dialect.Cause{}
	case CauseUnknown:
		return [2]dialect.Cause{-1, dialect.CauseUnknown}
	default:
		stored := dialect.Cause(slices.Index(causes, c))
		return [2]dialect.Cause{stored, stored}
	}
}
