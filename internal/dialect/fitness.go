package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// ErrUnfit is returned where Postbox cannot keep its promises with a database, or with the way in which that is opened. Waiting does not help.
var ErrUnfit = errors.New("the database cannot be used as it is")

// driverKinds tells for which kind of database a driver is. One that wraps another one, to trace it for example, is not among them.
var driverKinds = map[string]Kind{
	"github.com/lib/pq.Driver":                   PostgreSQL,
	"github.com/jackc/pgx/v5/stdlib.Driver":      PostgreSQL,
	"github.com/jackc/pgx/v4/stdlib.Driver":      PostgreSQL,
	"github.com/go-sql-driver/mysql.MySQLDriver": MySQL,
	"modernc.org/sqlite.Driver":                  SQLite,
	"github.com/glebarez/go-sqlite.Driver":       SQLite,
	"github.com/mattn/go-sqlite3.SQLiteDriver":   SQLite,
}

// driverKind tells for which kind of database a driver is, if it is known.
func driverKind(db *sql.DB) (kind Kind, known bool) {
	of := reflect.TypeOf(db.Driver())
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	kind, known = driverKinds[of.PkgPath()+"."+of.Name()]
	return kind, known
}

// CheckDriver returns [ErrUnfit] if the driver is one for another kind of database. It asks nobody, so it is for constructors.
func (s *Statements) CheckDriver(db *sql.DB) error {
	kind, known := driverKind(db)
	if !known {
		return nil
	}
	return s.checkKind(kind)
}

// CheckServer asks the server what it is, and how this session uses it. It returns [ErrUnfit] if Postbox would hang, publish what was
// rolled back, or forget what it has done.
func (s *Statements) CheckServer(ctx context.Context, db *sql.DB) error {
	kind, err := kindOf(ctx, db)
	if err != nil {
		return err
	}
	if err := s.checkKind(kind); err != nil {
		return err
	}
	if s.DatabaseFile == "" {
		return s.ask(ctx, db, s.Unfit)
	}
	var file string
	if err := db.QueryRowContext(ctx, s.DatabaseFile).Scan(&file); err != nil || file == "" { // one in memory has one connection
		return err
	}
	if err := s.ask(ctx, db, s.Unfit); err != nil {
		return err
	}
	return s.checkBegin(ctx, db)
}

// checkBegin is for SQLite, where a transaction that reads first and then writes fails if another one has written meanwhile, however long it would
// wait for the lock. So it has to take the lock when it begins, which only the way in which the database is opened decides.
func (s *Statements) checkBegin(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if s.Kind.Classify(err) == Conflict {
		return nil // it wanted the lock, and somebody has it
	}
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, s.AlongsideRead)
	if err == nil {
		return s.CheckReason("deferred")
	}
	if s.Kind.Classify(err) == Conflict {
		return nil
	}
	return err
}

// CheckTables does the same for what only tables that are there can tell.
func (s *Statements) CheckTables(ctx context.Context, db *sql.DB) error {
	return s.ask(ctx, db, s.UnfitTables)
}

func (s *Statements) ask(ctx context.Context, db *sql.DB, query string) error {
	if query == "" {
		return nil
	}
	var reason string
	if err := db.QueryRowContext(ctx, query).Scan(&reason); err != nil {
		return err
	}
	return s.CheckReason(reason)
}

// kindOf returns the kind of database that answers.
func kindOf(ctx context.Context, db *sql.DB) (Kind, error) {
	var version string
	err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	said, found := findReport(err, anyKind)
	switch {
	case err == nil && strings.HasPrefix(version, "PostgreSQL "):
		return PostgreSQL, nil
	case err == nil:
		return MySQL, nil
	case found && said.of == SQLite && said.kind() == MissingTable: // it has no such function
		return SQLite, nil
	default:
		return "", err
	}
}

func (s *Statements) checkKind(found Kind) error {
	if found == s.Kind {
		return nil
	}
	names := map[Kind]string{PostgreSQL: "PostgreSQL", MySQL: "MySQL", SQLite: "SQLite"}
	return fmt.Errorf("%w: Dialect is postbox.%s, and this database is %s: set Dialect to postbox.%s",
		ErrUnfit, names[s.Kind], names[found], names[found])
}

// reasons explain what Unfit, and the meta row of a fetch, return.
var reasons = map[string]string{
	"uncommitted": "its sessions read uncommitted data (transaction isolation READ UNCOMMITTED), so messages of transactions that roll back would be sent: " +
		"set READ COMMITTED or REPEATABLE READ as the default of the server, or add tx_isolation (MySQL: transaction_isolation) to the address, as %27READ-COMMITTED%27",
	"autocommit": "its sessions have autocommit = 0, so a statement by itself is never committed, and messages would be sent again and again: " +
		"set autocommit=1 on the server or in the address",
	"busy timeout": "SQLite does not wait for its lock, so transactions fail as soon as two meet (SQLITE_BUSY): " + sqliteAddress,
	"deferred": "transactions of SQLite do not take its lock when they begin, so they fail when they want to write and another one has written " +
		"meanwhile (SQLITE_BUSY): " + sqliteAddress,
	"sequence cache": "the sequence of the message ids has a CACHE above 1, so that ids are not in the order in which they are given, and messages would overtake each other: " +
		"ALTER SEQUENCE … CACHE 1",
}

const sqliteAddress = "open it with _pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate in the address"

// CheckReason returns [ErrUnfit] with an explanation, unless the reason is empty.
func (s *Statements) CheckReason(reason string) error {
	if reason == "" {
		return nil
	}
	explained := reasons[reason]
	if s.Kind == PostgreSQL {
		explained = strings.Replace(explained, "…", s.Names.Table("messages")+"_id_seq", 1)
	}
	return fmt.Errorf("%w: %s", ErrUnfit, explained)
}
