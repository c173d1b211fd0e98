package postbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/versions"
)

// Migrate brings the tables from any earlier version to the newest one.
//
// Any number of processes may call it at once: one of them runs each migration, and the others wait
// for it and find nothing left to do. On PostgreSQL and SQLite each migration is one transaction.
// MySQL commits each statement by itself, so a migration that was cut short there runs again from
// its start, which its statements allow. Migrate needs one connection, and the right to create
// tables if there is a migration to run. It returns an error if db.Dialect is not that of the
// database, or if the database is opened or set in a way in which Postbox could not keep its
// promises: see docs/databases.md. It also refuses tables of a state from before the first release,
// and changes nothing there.
//
// A migration waits half a second at most for another transaction on PostgreSQL, since all who
// need the table wait behind it. It tries again a second later, and returns an error after ten
// minutes.
//
// Migrate also makes the functions of PostgreSQL anew if they are missing, or do not work on these
// tables, as after ALTER SCHEMA … RENAME: for that it has to be their owner. It deletes entries of
// the audit log that are older than a year, unless the clock of the database is more than a day
// ahead of that of this process.
func Migrate(ctx context.Context, db Database) (err error) {
	defer func() { err = dialect.HintAtPooler(err) }()
	statements, err := db.statements()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if db.DB == nil {
		return errors.New("migrate: the database is nil: set DB")
	}
	files, err := statements.Migrations()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := statements.CheckDriver(db.DB); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	err = persist(ctx, statements.Kind, func() error {
		if err := statements.CheckServer(ctx, db.DB); err != nil && statements.Kind.Classify(err) != dialect.Conflict {
			return finalError{err}
		} else if err != nil { // such as a new file of SQLite that another process is just making
			return err
		}
		err := statements.CheckTables(ctx, db.DB)
		mend := errors.Is(err, dialect.ErrFunctions)
		if errors.Is(err, dialect.ErrUnfit) && !mend {
			return finalError{err}
		} else if err != nil && !mend {
			return err
		}
		if err := migrate(ctx, db.DB, statements, files); err != nil || !mend {
			return err
		}
		return makeFunctions(ctx, db.DB, statements)
	})
	var final finalError
	if errors.As(err, &final) {
		return fmt.Errorf("migrate: %w", dialect.HideAddress(final.error))
	}
	if err != nil {
		return fmt.Errorf("migrate tables %s: %w", statements.Names.Table("*"), dialect.HideAddress(err))
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB, statements *dialect.Statements, files fs.FS) error {
	store, err := versions.Store(statements)
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{goose.WithStore(store), goose.WithDisableGlobalRegistry(true)}
	if statements.MigrateLock != "" {
		options = append(options, goose.WithSessionLocker(migrationLock{statements}))
	}
	provider, err := goose.NewProvider(database.DialectCustom, db, files, options...)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return err
	}
	if err := nameDeployment(ctx, db, statements); err != nil {
		return err
	}
	return forgetActs(ctx, db, statements)
}

// makeFunctions makes the functions of the tables anew.
func makeFunctions(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	script, err := statements.Functions()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, script)
	return err
}

// actsFor is how long the actions of operators are kept: the audit of a whole year can look at
// them.
const actsFor = 365 * 24 * time.Hour

// forgetActs deletes older ones. It is done here, as the owner of the tables: no process that a
// stranger may have taken over needs the right to delete the traces.
func forgetActs(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	if ahead, err := statements.Ahead(ctx, db); err != nil || ahead > 0 {
		return err
	}
	purge := statements.PurgeAudit(dialect.PurgeParams{Retention: actsFor.Microseconds(), Limit: actsAtATime})
	for {
		result, err := db.ExecContext(ctx, purge.Text, purge.Args...)
		if err != nil {
			return err
		}
		if deleted, err := result.RowsAffected(); err != nil || deleted < actsAtATime {
			return err
		}
	}
}

// actsAtATime bounds a transaction that deletes them.
const actsAtATime = 1000

// nameDeployment stores the name of the deployment with the tables. If they already have a name, it
// must be the same.
func nameDeployment(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	if statements.Names.Deployment == "" {
		return nil
	}
	_, err := db.ExecContext(ctx, statements.NameDeployment, statements.Names.Deployment)
	if err != nil {
		return err
	}
	return statements.CheckDeployment(ctx, db)
}

// migrationLock lets one process at a time migrate a set of tables. It waits in the database, and
// the database lets go of it when the connection ends.
type migrationLock struct{ statements *dialect.Statements }

// SessionLock waits for the lock.
func (l migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	return l.run(ctx, conn, l.statements.MigrateLock)
}

// SessionUnlock gives the lock back.
func (l migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return l.run(ctx, conn, l.statements.MigrateUnlock)
}

func (l migrationLock) run(ctx context.Context, conn *sql.Conn, statement string) error {
	var ours int
	if err := conn.QueryRowContext(ctx, statement, l.name()).Scan(&ours); err != nil {
		return err
	}
	if ours != 1 {
		return errors.New("another process has held the migration lock for an hour: find out whether that process hangs, and end it if so")
	}
	return nil
}

func (l migrationLock) name() string { return "postbox migrate " + l.statements.VersionTable }

// WriteMigrations prints the migrations after version from, in order, as plain SQL, for use with
// another migration tool. WriteMigrations needs no connection: db.DB may be nil.
//
// The SQL also notes each migration in the table of versions, so [Migrate] and the command postbox
// know what has run, and both ways can be mixed. Programs that use such a tool need not call
// Migrate, unless Database.Deployment is set: Migrate alone stores that name.
func WriteMigrations(w io.Writer, db Database, from int64) error {
	statements, err := db.statements()
	if err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	files, err := statements.PlainMigrations()
	if err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	var script strings.Builder
	for _, entry := range entries {
		version, err := goose.NumericComponent(entry.Name())
		if err != nil {
			return fmt.Errorf("write migrations: %w", err)
		}
		if version <= from {
			continue
		}
		text, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return fmt.Errorf("write migrations: %w", err)
		}
		fmt.Fprintf(&script, "\n-- %s\n\n%s\n%s", entry.Name(), dialect.MigrationText(string(text)), statements.NoteVersion(version))
	}
	if _, err := fmt.Fprintf(w, "-- the table of the versions that have run\n\n%s%s", statements.NoteTable(), script.String()); err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	return nil
}
