// Package search has the statements with which operators look for messages, dead letters and stuck
// keys, and count them. Those that act on what was found are in package dialect, with all that the
// engine executes.
package search

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// Statements are those of one database and one set of tables.
type Statements struct {
	*dialect.Statements

	// messages.go, and mariadb.go for the second and third
	searchPending, searchEnd, searchUpTo, retryingOfKey dialect.Named
	doneMessages, doneInOrder                           dialect.Named
	// letters.go
	deadLetters, deadLetterErrors, letterSearchEnd dialect.Named
	// stuck.go
	stuckHeads, readyHeads, waitingOfKeys dialect.Named
	countStuck, countFewStuck             string
	// count.go
	countUpTo, countFew string
	InboxLetters        string // limit → consumer, number of its dead letters that are not resolved, among the latest ones of inboxes
}

// args are arguments by their names.
type args = map[string]any

// New returns the statements beside others of the same tables.
func New(others *dialect.Statements) *Statements {
	s := &Statements{Statements: others}
	s.messages()
	s.letters()
	s.stuck()
	s.count()
	return s
}
