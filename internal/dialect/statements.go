package dialect

import (
	"database/sql"
	"strings"
)

// Statements are all statements of Postbox for one database and one set of tables. Arguments are given
// in the order in which each field lists them.
type Statements struct {
	Kind  Kind
	Names Names
	// MaxAppend is the number of rows that one Append takes: the database's limit on parameters, or
	// what keeps its work at a sane size.
	MaxAppend int
	// Isolation is what our own transactions ask for, whatever the default of the database or the user is: they lock what
	// they depend on, and expect each statement to see what was committed before it.
	Isolation sql.IsolationLevel
	// Isolate says that also a statement by itself that removes messages or changes lanes needs a transaction, to get that isolation:
	// it would wait for rows that it only reads over.
	Isolate bool
	// ReadsUpTo says that a fetch knows FetchParams.UpTo, which costs far less than reading each lane.
	ReadsUpTo bool
	lists     lists

	// What must be so before anything starts, see [Statements.CheckServer].

	Unfit string // → why no session like this one can be used, or ''; empty where there is no such reason
	// BesideWriter fails in a transaction that has the lock of all that write, and does no harm; empty where there is no such lock.
	BesideWriter string
	UnfitTables  string // → the same of the tables

	// Spools and their lanes.

	Deployment     string // → the name that is stored, empty where there is none
	NameDeployment string // name: stores it, unless there is one

	Identity      string // → of these tables
	RegisterSpool string // name, lanes
	FindSpool     string // name → id, lanes
	FindNewSpool  string // name → id, lanes, also where it was registered after the transaction began
	SpoolByID     string // id → name, lanes
	PendingSpools string // pattern of names → name of each that has messages
	FillLanes     string // spool, lanes
	Join          string // spool, holder, in flight, ttl: enters the member or renews it
	Leave         string // spool, holder
	DropMembers   string // spool: forgets members that are long gone
	Renew         string // ttl, spool, holder
	Acquire       string // at least 1, holder, ttl, spool, limit or a list of lanes: the new token is so much later than the old one and the clock
	Held          string // spool, holder → lane, token, suspect
	// FreeLanes locks lanes that may be taken, as many as wanted, and skips those that another transaction has locked: spool, wanted → lane. Where it
	// is empty, Acquire does so by itself.
	FreeLanes string
	// HoldLane locks a lane until the transaction ends, so that no process takes it, whatever its lease says: spool, lane, token → 1.
	// It is empty where a transaction that writes keeps all others out.
	HoldLane     string
	ClearSuspect string // spool, lane, token
	Control      string // spool → version, 1 if paused, settings, paused keys

	// Messages.

	// Impatient stands before a statement that shall not wait for a lock for long, see [Statements.Impatiently].
	Impatient string
	// IsMariaDB → 1 on MariaDB, which obeys Impatient, and tells a statement whether there is a transaction; 0 on MySQL; empty elsewhere.
	IsMariaDB string

	LoadPayload string // spool, state, lane, id, created at → payload, metadata
	Retry       string // delay, attempts to add, starts to take back, spool, state, lane, id, created at, attempts so far, least and most starts, token
	// MoveToWaiting is Retry for a ready message → how many it took from the ready ones, how many arrived; empty where all have one table.
	MoveToWaiting string
	// StandsToRetry returns the id of a message that Retry or MoveToWaiting is to change, and has not changed: spool, state, lane, id, created at,
	// attempts so far, least and most starts, token.
	StandsToRetry string
	SeekStrays    string // spool → 1 where there is something for MoveStrays, else 0
	MoveStrays    string // spool → as MoveToWaiting: moves waiting messages that stand among the ready ones; empty where all have one table
	Writers       string // → low 32 bits of the id of each open transaction that may have written to the ready messages; empty where the database does not tell
	// FreeWriters returns which rows of {writers} no transaction has locked, of [WriterGroups]; empty where the database knows of no such rows.
	FreeWriters  string
	Advance      string // µs, again
	MessageTimes string // → id, created at of each message
	MoveFailures string // subject, subject so far
	ChangeSpools string // lets the drainers of all spools notice
	CountStart   string // starts to add, spool, state, lane, id, created at, most starts so far, token
	// TakeBackStart takes back a start that was counted: spool, lane, id, created at.
	TakeBackStart string
	BuryMessage   string // subject, error, spool, state, lane, id, created at, least starts, token: copies it to the dead letters

	// Failures and dead letters.

	InsertFailure    string // subject, attempt, error, process
	LastAttempt      string // subject → attempts since the last requeue
	Failures         string // subject, limit → attempt, failed at, error, process; oldest first
	InsertDeadLetter string // subject, spool, consumer, topic, message id, key, key hash, payload, metadata, attempts, error
	BuryRow          string // subject, spool, topic, message id, payload, metadata, error: a row of a source that is no message
	DeadLetter       string // id → the columns of DeadLetters, payload, metadata
	DeadLetters      string // see DeadLetterFilter.Args → id, origin, subject, spool, its name, consumer, topic, message id, key, created at, died at, attempts, error, resolved at, resolution, size
	LastDeadLetter   string // → highest id, or 0
	RemoveDeadLetter string // id: only while it is not resolved
	Resolve          string // reason, id
	DeleteDeadLetter string // id
	CountMessages    string // spool name, again → topic, pending, due, failing, parked, oldest age in µs, dead, dead of inboxes; a topic may come twice
	InFlight         string // spool name → in flight of each live member

	// Claims.

	Claim       string // key
	FindClaim   string // key → 1, or no row
	LockClaim   string // key: until the transaction ends
	RemoveClaim string // key
	ClaimsPage  string // after key, limit, retention → last key, keys, expired ones of them
	PurgeClaims string // after key, up to key, retention

	// Chores.

	AddChore         string // name
	TakeChore        string // holder, ttl, name, holder
	ChoreCursor      string // name → cursor
	SaveChore        string // cursor, name, holder
	PurgeDeadLetters string // spool, retention, limit
	PurgeOthers      string // retention, limit: dead letters of no spool
	PurgeFailures    string // retention, limit
	PurgeHistory     string // spool, retention, limit
	NextOfLetters    string // spool → the next one that has dead letters, or NULL, its settings, the history that its drainers keep
	NextOfHistory    string // spool → the same for done messages
	// NextWaiting: age in µs, again, spool → the next spool that has messages, or NULL, its name, or NULL where no such spool is registered, and 1 if one of its
	// messages could have been handled for so long and no drainer is there.
	NextWaiting string
	LeaveChore  string // name, holder

	// What operators see, and what they say.

	Spools          string // → id, name, lanes, paused at, settings, paused keys
	LiveMembers     string // → spool, in flight
	CountSpools     string // → spool, pending, due, failing, parked, oldest age in µs, dead, done; a spool may come three times
	Account         string // spool → pending, done, dead, resolved
	ChangeSpool     string // spool: lets its drainers notice
	PauseSpool      string // spool
	ResumeSpool     string // spool
	SetSettings     string // settings, spool, settings again
	PauseKey        string // spool, key hash, key
	ResumeKey       string // spool, key hash
	PausedKeys      string // spool → key, paused at
	ParkedOfKey     string // spool, key hash, after id, limit → id
	PendingMessage  string // spool, id → the columns of PendingMessages, payload, metadata
	PendingMessages string // see Pending → state, lane, id, topic, message id, key, attempts, created at, due at, size
	DoneMessage     string // spool, id → the columns of DoneMessages, payload, metadata
	DoneMessages    string // see Done → those of PendingMessages, with StateDone, and done at instead of due at
	LockMessage     string // spool, id → state, lane, created at, 1 if parked, 1 if due; locks the row
	SetDue          string // time or 0 for now, again, spool, state, lane, id
	BuryWaiting     string // subject, error, spool, state, lane, id
	RemoveMessage   string // spool, state, lane, id
	KeepHistory     string // µs for which done messages are kept, spool, µs again

	// Migrations.

	MigrateLock   string // lock name → 1 when it is ours, until the session ends or gives it back; empty where no such lock is taken
	MigrateUnlock string // lock name
	CreateVersion string // makes the version table if it is not there; empty where the migration tool's way is safe
	VersionTable  string // name of the table that holds the schema's version
	// migrateBegin returns how each migration begins in its transaction, by its number: it takes the lock of all that migrate, fails if the migration was
	// applied before (see [AppliedBefore]), and lets the rest wait for other transactions for a short time only. It is nil where there is a MigrateLock, or
	// where a transaction that writes keeps all others out.
	migrateBegin func(number string) string

	// Whose fault it was.

	Uptime string // → µs for which the server has been up, which server it is; empty where the database is a file
	// TryWrite changes nothing, and fails where the server is read-only.
	TryWrite string
	// MakeWritable, if not empty, makes a session writable that a statement has made read-only, where its connection must not be given up: on SQLite it
	// may hold the whole database in memory.
	MakeWritable string
	// BeginAgain fails within a transaction, and begins one where there is none; empty where the drivers tell, see TxStatusOf.
	BeginAgain string

	// ServerIn is an expression. On servers it is the text by which the server that answers is found in the list of [Seen]; on SQLite it is the
	// highest id that was given to a message.
	ServerIn string

	DatabaseFile string // → path of the file, empty for a database in memory; the text is empty where there are servers

	// Wake-ups; empty where the database has none.

	Notify string // channel, payload
}

// each calls f with a pointer to every statement text, so that names can be filled in at one place.
func (s *Statements) each(f func(*string)) {
	for _, text := range []*string{
		&s.Unfit, &s.BesideWriter, &s.UnfitTables, &s.Deployment, &s.NameDeployment, &s.Identity, &s.RegisterSpool, &s.FindSpool, &s.FindNewSpool, &s.SpoolByID, &s.PendingSpools, &s.FillLanes, &s.Join, &s.Leave, &s.DropMembers, &s.Renew, &s.FreeLanes, &s.Acquire, &s.Held, &s.HoldLane, &s.ClearSuspect, &s.Control,
		&s.LoadPayload, &s.Retry, &s.MoveToWaiting, &s.StandsToRetry, &s.SeekStrays, &s.MoveStrays, &s.Writers, &s.FreeWriters, &s.Advance, &s.MessageTimes, &s.MoveFailures, &s.ChangeSpools, &s.CountStart, &s.TakeBackStart, &s.BuryMessage,
		&s.InsertFailure, &s.LastAttempt, &s.Failures, &s.InsertDeadLetter, &s.BuryRow, &s.DeadLetter, &s.DeadLetters,
		&s.LastDeadLetter, &s.RemoveDeadLetter, &s.Resolve, &s.DeleteDeadLetter, &s.CountMessages, &s.InFlight,
		&s.Claim, &s.FindClaim, &s.LockClaim, &s.RemoveClaim, &s.ClaimsPage, &s.PurgeClaims,
		&s.AddChore, &s.TakeChore, &s.ChoreCursor, &s.SaveChore, &s.PurgeDeadLetters, &s.PurgeOthers, &s.PurgeFailures, &s.PurgeHistory, &s.NextOfLetters, &s.NextOfHistory, &s.NextWaiting, &s.LeaveChore,
		&s.Spools, &s.LiveMembers, &s.CountSpools, &s.Account, &s.ChangeSpool, &s.PauseSpool, &s.ResumeSpool, &s.SetSettings,
		&s.PauseKey, &s.ResumeKey, &s.PausedKeys, &s.ParkedOfKey, &s.PendingMessage, &s.PendingMessages, &s.DoneMessage, &s.DoneMessages,
		&s.LockMessage, &s.SetDue, &s.BuryWaiting, &s.RemoveMessage, &s.KeepHistory,
		&s.MigrateLock, &s.MigrateUnlock, &s.CreateVersion, &s.DatabaseFile, &s.ServerIn, &s.Uptime, &s.TryWrite, &s.MakeWritable, &s.BeginAgain, &s.Notify,
	} {
		f(text)
	}
}

// finish fills in table names and argument marks.
func (s *Statements) finish(fill *strings.Replacer, marks func(string) string) *Statements {
	s.each(func(text *string) { *text = marks(fill.Replace(strings.TrimSpace(*text))) })
	return s
}

// Savepoint returns the statements that set a savepoint, go back to it and let go of it. The name must be the
// only one of its kind in the transaction: on MySQL a second one takes the place of the first.
func Savepoint(name string) (set, rollback, release string) {
	return "SAVEPOINT " + name, "ROLLBACK TO SAVEPOINT " + name, "RELEASE SAVEPOINT " + name
}
