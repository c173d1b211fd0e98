// Package operatorsql has the statements that only operators execute: with which they look for
// messages, dead letters and stuck keys, count them, and act on what they have found. Those of the
// engine are in package dialect.
package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// Statements are those of one database and one set of tables.
type Statements struct {
	*dialect.Statements

	// pauses.go
	pauseSpool, pauseKey, resumeKey, pauseTopic, replaceTopicPause, resumeTopic dialect.Named
	// one.go
	Account            string // spool → pending, done, dead, resolved
	LaneHolders        string // spool → lane, holder or '', token, end of the lease, suspect, 1 if the lease lasts
	ChangeSpool        string // spool: lets its drainers notice
	LockSettings       string // spool; locks its row
	MessageOfUniqueKey string // digest → id and time of the message that was stored last under it, which may be gone
	DeadLetter         string // id → the columns of DeadLetters, payload, metadata, source, carried id

	setSettings, pendingMessage, doneMessage, lockListed, setDue, buryWaiting, removeMessage dialect.Named
	letterBehind, deleteDeadLetter, resolve, failures                                        dialect.Named
	// audit.go
	auditRows, auditSearchEnd dialect.Named
	// messages.go, and mariadb.go for the second and third
	searchPending, searchEnd, searchUpTo, retryingOfKey dialect.Named
	doneMessages, doneInOrder                           dialect.Named
	// letters.go
	deadLetters, newestLetters, deadLetterErrors, letterSearchEnd, newestSearchEnd dialect.Named
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
	s.pauses()
	s.one()
	s.audit()
	s.messages()
	s.letters()
	s.stuck()
	s.count()
	return s
}
