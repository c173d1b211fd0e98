package dialect

import (
	"database/sql"
	"reflect"
	"strings"
	"sync"
)

// Statements holds all statements of Postbox for one database and one set of tables. A text with at
// most one argument is an exported field. A text with more arguments has a method, which names the
// arguments and puts them into the order of the text. So no caller can swap two arguments.
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
	fill      *strings.Replacer   // of names in braces, for other packages
	marks     func(string) string // of arguments
	renaming  *strings.Replacer   // of tables
	made      *sync.Map           // texts that were used, by their textName
	texts     map[string][]string // see [Texts]

	// Texts with at most one argument. The files of the statements say what each takes and returns.
	// It is empty where the database does without it.

	Unfit, UnfitTables, Behind, BesideWriter, TryWrite, MakeWritable, BeginAgain, Uptime, IsMariaDB string
	Deployment, NameDeployment, Identity, FindSpool, FindNewSpool, DatabaseFile                     string
	Claim, FindClaim, LockClaim, RemoveClaim, LastAttempt, Writers, FreeWriters                     string
	AddChore, ChoreCursor, NextOfLetters, NextOfHistory                                             string
	Members, Clock, Fullness, Ages, SettingsOf, PausedKeys, PausedTopics                            string
	MigrateLock, MigrateUnlock, CreateVersion                                                       string

	// Impatient begins a statement, see [Statements.Impatiently]. ServerIn is an expression, see
	// [Seen]. VersionTable is the name of the table with the version of the schema.
	Impatient, ServerIn, VersionTable string
	// migrateBegin returns the beginning of each migration's transaction, by its number. It takes
	// the lock shared by all migrations, fails if the migration was applied before (see
	// [AppliedBefore]), and limits how long the rest waits for other transactions. It is nil if
	// there is a MigrateLock, or if a writing transaction excludes all others.
	migrateBegin func(number string) string
}

// newStatements returns those of a kind of database without what its own file adds.
func newStatements(kind Kind, names Names) *Statements {
	s := &Statements{Kind: kind, Names: names, VersionTable: names.Table("version"), renaming: names.renaming(), made: new(sync.Map), texts: engine()[kind], marks: unchanged, fill: vocabulary(kind, names)}
	if kind == PostgreSQL {
		s.marks = dollars
	}
	value := reflect.ValueOf(s).Elem()
	for name := range s.texts {
		if field := value.FieldByName(name); field.IsValid() {
			field.SetString(s.of(name).text)
		}
	}
	return s
}

// Text returns a text with the names of this database and ? for each argument as the database gets
// it.
func (s *Statements) Text(text string) string {
	return s.marks(s.fill.Replace(strings.TrimSpace(text)))
}

func (s *Statements) named(text string) statement {
	return s.Kind.marked(s.fill.Replace(strings.TrimSpace(text)))
}

// Named is a statement of another package, whose arguments have names.
type Named struct{ statement }

// Named returns it for a text with the names of this database and :name for each argument.
func (s *Statements) Named(text string) Named { return Named{s.named(text)} }

// With returns the statement with its arguments.
func (n Named) With(values map[string]any) Query { return n.with(values) }

// Text returns the statement as the database gets it.
func (n Named) Text() string { return n.text }

// Numbers returns the argument for a list of numbers.
func (s *Statements) Numbers(list []int64) any { return s.lists.numbers(list) }

// Nullable does the same for a list with NULL for nil.
func (s *Statements) Nullable(list []*int64) any { return s.lists.nullable(list) }

// Savepoint returns the statements that set a savepoint, go back to it and release it. The name
// must be unique in the transaction: on MySQL a second savepoint with the name replaces the first.
func Savepoint(name string) (set, rollback, release string) {
	return "SAVEPOINT " + name, "ROLLBACK TO SAVEPOINT " + name, "RELEASE SAVEPOINT " + name
}
