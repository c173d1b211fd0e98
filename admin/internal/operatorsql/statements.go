// Package operatorsql has the statements that only operators execute: with which they look for
// messages, dead letters and stuck keys, count them, and act on what they have found. The folder
// statements has them as they run on each database. Those of the engine are in package dialect.
package operatorsql

import (
	"embed"
	"strconv"
	"strings"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

//go:embed statements/*.sql
var files embed.FS

var texts = sync.OnceValue(func() dialect.Texts { return dialect.ReadTexts(files) })

// Statements are those of one database and one set of tables.
type Statements struct {
	*dialect.Statements                     // of the engine
	own                 *dialect.Statements // of operators

	Account            string // spool → pending, done, dead, resolved
	LaneHolders        string // spool → lane, holder or '', token, end of the lease, suspect, 1 if the lease lasts
	ChangeSpool        string // spool: lets its drainers notice
	LockSettings       string // spool; locks its row
	MessageOfUniqueKey string // digest → id and time of the message that was stored last under it, which may be gone
	LockAct, NoteOfAct string // operation
	DeadLetter         string // id → the columns of DeadLetters, payload, metadata, source, carried id
	InboxLetters       string // limit → consumer, number of its dead letters that are not resolved, among the latest ones of inboxes

	stuckHeads, waitingOfKeys dialect.Named // which MariaDB has for each lane
}

// args are arguments by their names.
type args = map[string]any

// New returns the statements beside others of the same tables.
func New(others *dialect.Statements) *Statements {
	s := &Statements{Statements: others, own: others.WithTexts(texts())}
	for name, text := range map[string]*string{
		"Account": &s.Account, "LaneHolders": &s.LaneHolders, "ChangeSpool": &s.ChangeSpool, "LockSettings": &s.LockSettings,
		"MessageOfUniqueKey": &s.MessageOfUniqueKey, "LockAct": &s.LockAct, "NoteOfAct": &s.NoteOfAct, "DeadLetter": &s.DeadLetter, "InboxLetters": &s.InboxLetters,
	} {
		*text = s.Named(s.own.Raw(name)).Text()
	}
	s.stuckHeads, s.waitingOfKeys = s.ofLanes("StuckHeads", "StuckHeadsOfLane"), s.ofLanes("WaitingOfKeys", "WaitingOfLane")
	return s
}

// ofLanes puts a part for each lane into the place of {lanes}, if there is one.
func (s *Statements) ofLanes(name, ofLane string) dialect.Named {
	lanes, part := make([]string, dialect.Lanes), s.own.Raw(ofLane)
	for lane := range lanes {
		lanes[lane] = strings.ReplaceAll(part, "{lane}", strconv.Itoa(lane))
	}
	return s.Named(strings.Replace(s.own.Raw(name), "{lanes}", "\t"+strings.Join(lanes, " UNION ALL\n\t"), 1))
}

func (s *Statements) query(name string, values args) dialect.Query { return s.own.Query(name, values) }
