package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// ErrUnfit is returned if Postbox cannot keep its guarantees with a database, or with the way in
// which the database is opened. Waiting does not help.
var ErrUnfit = errors.New("the database cannot be used like this")

// ErrFunctions is the [ErrUnfit] of functions that [Statements.Functions] makes anew.
var ErrFunctions = fmt.Errorf("%w", ErrUnfit)

// driverKinds maps a driver to its kind of database. It does not contain drivers that wrap another
// one, for example for tracing.
var driverKinds = map[string]Kind{
	"github.com/lib/pq.Driver":                   PostgreSQL,
	"github.com/jackc/pgx/v5/stdlib.Driver":      PostgreSQL,
	"github.com/jackc/pgx/v4/stdlib.Driver":      PostgreSQL,
	"github.com/go-sql-driver/mysql.MySQLDriver": MySQL,
	"modernc.org/sqlite.Driver":                  SQLite,
	"github.com/glebarez/go-sqlite.Driver":       SQLite,
	"github.com/mattn/go-sqlite3.SQLiteDriver":   SQLite,
}

// CheckDriver returns [ErrUnfit] if the driver is for another kind of database. It executes
// nothing, so constructors can use it.
func (s *Statements) CheckDriver(db *sql.DB) error {
	of := reflect.TypeOf(db.Driver())
	if of == nil { // a connector need not have one
		return nil
	}
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if kind, known := driverKinds[of.PkgPath()+"."+of.Name()]; known {
		return s.checkKind(kind)
	}
	return nil
}

// CheckServer asks the server which database it is, and how its sessions are set. It returns
// [ErrUnfit] if Postbox would wait for ever, publish messages that were rolled back, or forget what
// it has done.
func (s *Statements) CheckServer(ctx context.Context, db *sql.DB) error {
	found, version, err := s.kindOf(ctx, db)
	if err == nil {
		err = s.checkVersion(found, version)
	}
	if err == nil && found != anyKind {
		err = s.checkKind(found)
	}
	if err == nil {
		err = s.checkGalera(ctx, db, version)
	}
	if err != nil {
		return err
	}
	if s.DatabaseFile != "" {
		var file string
		if err := db.QueryRowContext(ctx, s.DatabaseFile).Scan(&file); err != nil || file == "" { // in memory, with one connection
			return err
		}
	}
	if err := s.CheckSessions(ctx, db); err != nil {
		return err
	}
	return s.checkBegin(ctx, db)
}

// CheckSessions returns [ErrUnfit] if new sessions of the server are not set as Postbox needs them.
// On servers it closes idle connections of the pool with such a session. A function of the user may
// have changed a single session and returned its connection, and a pool hands out the most recently
// returned connection first.
func (s *Statements) CheckSessions(ctx context.Context, db *sql.DB) error {
	if s.Kind == SQLite { // the connection may be the database
		return s.ask(ctx, db, s.Unfit)
	}
	for free := db.Stats().Idle; ; free-- {
		err := s.checkSession(ctx, db)
		if !errors.Is(err, ErrUnfit) || free <= 0 { // no connection was idle, so the one that was asked is new
			return err
		}
	}
}

// checkSession checks the next connection of the pool, and closes it if it cannot be used.
func (s *Statements) checkSession(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return HideAddress(err)
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(inner any) error {
		if _, levels := inner.(driver.ConnBeginTx); !levels {
			return s.CheckReason("levels")
		}
		return nil
	})
	if err == nil {
		err = s.ask(ctx, conn, s.Unfit)
	}
	if errors.Is(err, ErrUnfit) {
		Discard(conn)
	}
	return err
}

// CheckTables is like [Statements.CheckServer], for properties that only existing tables can show.
func (s *Statements) CheckTables(ctx context.Context, db *sql.DB) error {
	return s.ask(ctx, db, s.UnfitTables)
}

// ErrBehind is returned for sequences that are behind the ids of their tables. Messages are found
// late and out of order, and rows cannot be stored, until the sequences are set.
var ErrBehind = errors.New("sequences are behind the ids of their tables, as after logical replication or a restore of the rows alone, so messages come late or out of order, and inserts fail (23505): execute")

// CheckSequences returns [ErrBehind], with the statements that mend it.
func (s *Statements) CheckSequences(ctx context.Context, db *sql.DB) error {
	if s.Behind == "" {
		return nil
	}
	var mend string
	if err := db.QueryRowContext(ctx, s.Behind).Scan(&mend); err != nil || mend == "" {
		return err
	}
	return fmt.Errorf("%w %s", ErrBehind, mend)
}

// asked is a pool or one connection.
type asked interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *Statements) ask(ctx context.Context, db asked, query string) error {
	if query == "" {
		return nil
	}
	var reason string
	if err := db.QueryRowContext(ctx, query).Scan(&reason); err != nil {
		return err
	}
	return s.CheckReason(reason)
}

// checkBegin is for SQLite. There a transaction that first reads and then writes fails if another
// one has written meanwhile, however long it would wait for the lock. So it must take the lock when
// it begins, which only the address of the database can set.
func (s *Statements) checkBegin(ctx context.Context, db *sql.DB) error {
	if s.BesideWriter == "" {
		return nil
	}
	tx, err := db.BeginTx(ctx, nil)
	if s.Kind.Classify(err) == Conflict {
		return nil // it tried to take the lock, which another transaction holds
	}
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, s.BesideWriter)
	if err == nil {
		return s.CheckReason("deferred")
	}
	if ctx.Err() != nil || s.Kind.Classify(err) == Unavailable {
		return err
	}
	return nil // it failed because the transaction holds the lock, and not every driver has a code for that
}

const (
	askVersion       = `SELECT version()`
	askSQLiteVersion = `SELECT sqlite_version()`
)

// kindOf returns the kind of database that answers, or anyKind if it is unknown, and its version.
// It returns an error if the database cannot be asked.
func (s *Statements) kindOf(ctx context.Context, db *sql.DB) (kind Kind, version string, err error) {
	first, second := askVersion, askSQLiteVersion
	if s.Kind == SQLite {
		first, second = second, first
	}
	err = db.QueryRowContext(ctx, first).Scan(&version)
	asked := first
	if err != nil && ctx.Err() == nil && db.QueryRowContext(ctx, second).Scan(&version) == nil {
		asked, err = second, nil
	}
	switch {
	case err != nil:
		return anyKind, "", err
	case asked == askSQLiteVersion:
		return SQLite, version, nil
	case strings.HasPrefix(version, "PostgreSQL "):
		return PostgreSQL, version, nil
	case version != "" && version[0] >= '0' && version[0] <= '9':
		return MySQL, version, nil
	default:
		return anyKind, version, nil
	}
}

func (s *Statements) checkKind(found Kind) error {
	if found == s.Kind {
		return nil
	}
	return fmt.Errorf("%w: Dialect is postbox.%s, and this database is %s: set Dialect to postbox.%s",
		ErrUnfit, s.Kind.Can().Name, found.Can().Name, found.Can().Name)
}

// reasons explains the results of Unfit, UnfitTables and the meta row of a fetch.
var reasons = map[string]string{
	"uncommitted": "its sessions read uncommitted data (transaction isolation READ UNCOMMITTED), so messages of transactions that roll back would be published: " +
		"set READ COMMITTED or REPEATABLE READ as the default of the server, or add tx_isolation=%27READ-COMMITTED%27 to the address (MySQL: transaction_isolation)",
	"autocommit": "its sessions have autocommit = 0, so a statement outside a transaction is never committed, and messages would be published again and again: " +
		"set autocommit = 1 as the default of the server, or add autocommit=1 to the address",
	"galera": "it is a node of a Galera cluster, and the driver prepares statements, after which MariaDB can commit half of a transaction: " +
		"add interpolateParams=true to the address, see docs/databases.md",
	"packet":       "max_allowed_packet is below 16 MiB (16777216), the default of MariaDB, so messages that are allowed could not be stored: raise it",
	"busy timeout": "SQLite does not wait for its lock, so transactions fail as soon as two meet (SQLITE_BUSY): " + sqliteAddress,
	"deferred": "transactions of SQLite do not take its lock when they begin, so they fail when they want to write and another one has written " +
		"meanwhile (SQLITE_BUSY): " + sqliteAddress,
	"levels": "the driver around its driver hides BeginTx (driver.ConnBeginTx), so transactions cannot have an isolation level: " +
		"let it implement what the driver inside implements",
	"earlier": "its tables are of a state from before the first release, which this version cannot use: drop the tables of Postbox, " +
		"or give these tables another Prefix, and call postbox.Migrate",
	"functions": "the functions of these tables are missing, or work on the tables of another schema, as after ALTER SCHEMA … RENAME or a restore: " +
		"call postbox.Migrate with the same Schema, as the owner of the tables, which makes them anew",
	"execute": "this role may not execute the functions of these tables: GRANT EXECUTE ON FUNCTION, see docs/security.md",
	"sequence cache": "the sequence of the message ids has a CACHE above 1, so later messages may have lower ids, and would overtake earlier ones: " +
		"ALTER SEQUENCE {sequence} CACHE 1, then restart all producers, since their sessions use up the ids that they have taken in advance, " +
		"and start forwarders and queues only after that",
}

const sqliteAddress = "open it with _pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate in the address"

// CheckReason returns [ErrUnfit] with an explanation, unless the reason is empty.
func (s *Statements) CheckReason(reason string) error {
	if reason == "" {
		return nil
	}
	err := ErrUnfit
	if reason == "functions" {
		err = ErrFunctions
	}
	return fmt.Errorf("%w: %s", err, strings.Replace(reasons[reason], "{sequence}", s.Names.Table("messages")+"_id_seq", 1))
}
