package dialect

import (
	"database/sql"
	"strings"
)

// Statements holds all statements of Postbox for one database and one set of tables. A text with at
// most one argument is an exported field. Its comment names the argument and, after an arrow, the
// result of the statement. A text with more arguments has a method, which names the arguments and
// puts them into the order of the text. That text is not exported, so no caller can swap two
// arguments.
type Statements struct {
	Kind  Kind
	Names Names
	// MaxAppend is the maximum number of rows of one Append: the database's limit on parameters, or
	// a limit on its work.
	MaxAppend int
	// Isolation is the isolation level of Postbox's own transactions, whatever the default of the
	// database or the user is. They lock the rows they depend on, and expect each statement to see
	// what was committed before it.
	Isolation sql.IsolationLevel
	// AnyServer leaves out the check of the server's product and version.
	AnyServer bool
	// Isolate says that even a single statement that removes messages or changes lanes needs a
	// transaction with that isolation. Otherwise it would wait for rows that it only reads.
	Isolate bool
	// ReadsUpTo says that a fetch supports FetchParams.UpTo, which costs far less than reading each
	// lane.
	ReadsUpTo bool
	lists     lists
	fill      replacer            // of names in braces
	marks     func(string) string // of arguments

	// Lists of messages and lanes: dialect.go.
	lock, find, lockAsRead, standingAsRead, countStarts, takeBackStarts, release statement

	limits, addSlots, changeSlots statement // limits.go

	// What must be so before anything starts, see [Statements.CheckServer].

	Unfit string // → why no session like this one can be used, or ''; empty where there is no such reason
	// BesideWriter fails in a transaction that has the lock of all that write, and does no harm;
	// empty where there is no such lock.
	BesideWriter string
	UnfitTables  string // → the same of the tables
	Behind       string // → statements that set sequences which are behind the ids of their tables; the text is empty where ids come from the tables

	// Spools and their lanes: arguments_lanes.go.

	Deployment     string // → the name that is stored, empty where there is none
	NameDeployment string // name: stores it, unless there is one

	Identity      string // → of these tables
	registerSpool string
	FindSpool     string // name → id
	FindNewSpool  string // name → id, also where it was registered after the transaction began; empty where FindSpool finds it
	fillLanes     string
	join          string
	leave         string
	expireMembers string
	renew         string
	releaseAll    statement
	acquire       statement
	held          string
	freeLanes     statement // empty where acquire chooses lanes by itself
	lockLanes     statement
	holdLane      string // empty where a transaction that writes keeps all others out
	clearSuspect  string
	blockedLanes  statement

	// Messages: arguments_messages.go.

	// Impatient is the prefix of a statement that must not wait long for a lock, see
	// [Statements.Impatiently].
	Impatient string
	// IsMariaDB → 1 on MariaDB, which supports Impatient, and tells a statement whether there is a
	// transaction; 0 on MySQL; empty elsewhere.
	IsMariaDB string

	loadPayload  string
	settleFailed statement // see failed.go; empty where the three below do its work
	retryFailed  statement
	buryFailed   statement
	noteFailed   statement
	Writers      string // → low 32 bits of the id of each open transaction that may have written to the ready messages; empty where the database does not tell
	// FreeWriters returns which rows of {writers} no transaction has locked, of [WriterGroups];
	// empty where the database knows of no such rows.
	FreeWriters string

	// Failures and dead letters: arguments_letters.go.

	insertFailure             string
	LastAttempt               string // subject → attempts since the last requeue
	insertDeadLetter, buryRow statement

	// Claims: arguments_chores.go.

	Claim       string // key
	FindClaim   string // key → 1, or no row
	LockClaim   string // key: until the transaction ends
	RemoveClaim string // key
	claimsPage  string
	purgeClaims string

	// Chores: arguments_chores.go.

	AddChore         string // name
	takeChore        statement
	ChoreCursor      string // name → cursor
	saveChore        string
	purgeDeadLetters string
	purgeOthers      string
	purgeFailures    string
	purgeHistory     string
	purgeAudit       string
	purgeReceipts    string
	NextOfLetters    string // spool → the next one that has dead letters, or NULL, its settings, the history that its drainers keep
	NextOfHistory    string // spool → the same for done messages
	nextWaiting      statement

	// What operators see, and what they say: arguments_operators.go.

	spools        statement
	Members       string // spool, or 0 for all → spool, holder, in flight, end of the membership of each live member
	Clock         string // → the database's clock
	Fullness      string // → id and name of each spool, and 1 if it has a message; also an id without a row that messages name, with NULL
	SettingsOf    string // spool → its settings
	PausedKeys    string // spool → key, paused at, by whom, reason, and [Never]
	PausedTopics  string // spool → topic, paused at, by whom, reason, end
	keepHistory   statement
	keepBatches   statement
	keepReceived  statement               // see received.go
	awaitReceipts [len(awaitSizes)]string // see receipts.go
	changeReceipt statement
	addReceipt    string
	receiptPage   string
	receiptsOf    string
	addToAct      string // see audit.go
	recordAct     string
	LockAct       string // operation; locks its row
	NoteOfAct     string // operation → its note

	// count.go

	// Ages → id and name (NULL without a row) of each spool, its times: see [Ages].
	Ages string

	// Unique keys: unique.go.

	uniqueKeysPage  string
	removeUniqueKey string

	// Migrations.

	MigrateLock   string // lock name → 1 when it is ours, until the session ends or gives it back; empty where no such lock is taken
	MigrateUnlock string // lock name
	CreateVersion string // makes the version table if it is not there
	VersionTable  string // name of the table that holds the schema's version
	// migrateBegin returns the beginning of each migration's transaction, by its number. It takes
	// the lock shared by all migrations, fails if the migration was applied before (see
	// [AppliedBefore]), and limits how long the rest waits for other transactions. It is nil if
	// there is a MigrateLock, or if a writing transaction excludes all others.
	migrateBegin func(number string) string

	// Whose fault it was.

	Uptime string // → µs for which the server has been up, which server it is; empty where the database is a file
	// TryWrite changes nothing, and fails if the server is read-only.
	TryWrite string
	// MakeWritable, if not empty, makes a session writable again that a statement has made
	// read-only. It is for SQLite, where the connection must not be given up, because it may hold
	// the whole database in memory.
	MakeWritable string
	// BeginAgain fails within a transaction, and begins one if there is none; empty if the drivers
	// report the status, see TxStatusOf.
	BeginAgain string

	// ServerIn is an expression. On servers it is the text by which the server that answers is
	// found in the list of [Seen]; on SQLite it is the highest id that was given to a message.
	ServerIn string

	DatabaseFile string // → path of the file, empty for a database in memory; the text is empty where there are servers

	notify string // wake-ups; empty where the database has none

	// Empty where no log is tailed.

	idleLook statement // idle.go
}

// each calls f with a pointer to every statement text, so that names are filled in in one place.
func (s *Statements) each(f func(*string)) {
	for _, text := range []*string{
		&s.Unfit, &s.BesideWriter, &s.UnfitTables, &s.Behind, &s.Deployment, &s.NameDeployment, &s.Identity, &s.registerSpool, &s.FindSpool, &s.FindNewSpool, &s.fillLanes, &s.join, &s.leave, &s.expireMembers, &s.renew, &s.held, &s.holdLane, &s.clearSuspect,
		&s.loadPayload, &s.Writers, &s.FreeWriters,
		&s.insertFailure, &s.LastAttempt,
		&s.Claim, &s.FindClaim, &s.LockClaim, &s.RemoveClaim, &s.claimsPage, &s.purgeClaims,
		&s.AddChore, &s.ChoreCursor, &s.saveChore, &s.purgeDeadLetters, &s.purgeOthers, &s.purgeFailures, &s.purgeHistory, &s.purgeAudit, &s.purgeReceipts, &s.NextOfLetters, &s.NextOfHistory,
		&s.Members, &s.Clock, &s.Fullness, &s.SettingsOf,
		&s.PausedKeys, &s.PausedTopics,
		&s.addToAct, &s.recordAct, &s.LockAct, &s.NoteOfAct,
		&s.awaitReceipts[0], &s.awaitReceipts[1], &s.awaitReceipts[2], &s.addReceipt, &s.receiptPage, &s.receiptsOf,
		&s.uniqueKeysPage, &s.removeUniqueKey, &s.Ages,
		&s.MigrateLock, &s.MigrateUnlock, &s.CreateVersion, &s.DatabaseFile, &s.ServerIn, &s.Uptime, &s.TryWrite, &s.MakeWritable, &s.BeginAgain, &s.notify,
	} {
		f(text)
	}
}

// finish fills in table names and argument marks.
func (s *Statements) finish(fill replacer, marks func(string) string) *Statements {
	s.fill, s.marks = fill, marks
	s.each(func(text *string) { *text = s.Text(*text) })
	for _, named := range []*statement{
		&s.releaseAll, &s.blockedLanes, &s.acquire, &s.freeLanes, &s.lockLanes, &s.settleFailed, &s.retryFailed, &s.buryFailed, &s.noteFailed, &s.idleLook,
		&s.keepHistory, &s.keepBatches, &s.nextWaiting, &s.keepReceived,
		&s.spools, &s.takeChore, &s.insertDeadLetter, &s.buryRow, &s.changeReceipt,
		&s.lock, &s.find, &s.lockAsRead, &s.standingAsRead, &s.countStarts, &s.takeBackStarts, &s.release, &s.limits, &s.addSlots, &s.changeSlots,
	} {
		*named = s.named(named.text)
	}
	return s
}

// Text returns a text with the names of this database and ? for each argument as the database gets
// it.
func (s *Statements) Text(text string) string {
	return s.marks(s.fill.Replace(strings.TrimSpace(text)))
}

func (s *Statements) named(text string) statement {
	return s.Kind.marked(s.fill.Replace(strings.TrimSpace(s.fill.Replace(text))))
}

// Named is a statement of another package, whose arguments have names.
type Named struct{ statement }

// Named returns it for a text with the names of this database and :name for each argument.
func (s *Statements) Named(text string) Named { return Named{s.named(text)} }

// With returns the statement with its arguments.
func (n Named) With(values map[string]any) Query { return n.with(values) }

// Numbers returns the argument for a list of numbers.
func (s *Statements) Numbers(list []int64) any { return s.lists.numbers(list) }

// Nullable does the same for a list with NULL for nil.
func (s *Statements) Nullable(list []*int64) any { return s.lists.nullable(list) }

// Savepoint returns the statements that set a savepoint, go back to it and release it. The name
// must be unique in the transaction: on MySQL a second savepoint with the name replaces the first.
func Savepoint(name string) (set, rollback, release string) {
	return "SAVEPOINT " + name, "ROLLBACK TO SAVEPOINT " + name, "RELEASE SAVEPOINT " + name
}
