package postbox

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// MigrateConfig says what to migrate.
type MigrateConfig struct {
	// Dialect of the database. Required.
	Dialect Dialect
	// Tables says where the tables are. The zero value is the default place.
	Tables Tables
	// Version to stop at, for those who roll out step by step. Defaults to the newest.
	Version int64
}

func (c MigrateConfig) statements() (*dialect.Statements, error) {
	if err := c.Dialect.Validate(); err != nil {
		return nil, err
	}
	names, err := dialect.NewNames(c.Tables.Schema, c.Tables.Prefix, c.Tables.Deployment)
	if err != nil {
		return nil, err
	}
	return dialect.New(dialect.Kind(c.Dialect), names)
}

// Migrate brings the tables to the newest version, or to config.Version, from whatever earlier version is there.
//
// Any number of processes may call it at once: one migrates, the others wait for it and find nothing left to
// do. On PostgreSQL and SQLite each step of a migration is one transaction. MySQL commits each statement by itself, so a
// migration cut short there is run again from its start, which its statements allow. It needs one
// connection, and the right to create tables where there is something to do.
//
// On PostgreSQL it waits for a lock on a table for half a second at most, since whoever uses the table would wait behind it, and tries
// again a second later. After ten minutes it returns an error.
func Migrate(ctx context.Context, db *sql.DB, config MigrateConfig) error {
	statements, err := config.statements()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	migrations, err := config.migrations(statements, 0)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	err = statements.CheckDriver(db)
	if err == nil {
		err = statements.CheckServer(ctx, db)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", dialect.HintAtPooler(dialect.HideAddress(err)))
	}
	err = migrator{db: db, statements: statements, migrations: migrations}.run(ctx)
	if err == nil {
		err = nameDeployment(ctx, db, statements)
	}
	if err != nil {
		return fmt.Errorf("migrate tables %q: %w", statements.Names.Table("*"), dialect.HintAtPooler(dialect.HideAddress(err)))
	}
	return nil
}

// migrations are those after a version, up to the one that is configured.
func (c MigrateConfig) migrations(statements *dialect.Statements, after int64) ([]dialect.Migration, error) {
	all, err := statements.Migrations()
	return slices.DeleteFunc(all, func(m dialect.Migration) bool {
		return m.Version <= after || c.Version > 0 && m.Version > c.Version
	}), err
}

// nameDeployment stores the name of the deployment with the tables, unless they have one, which must be the same.
func nameDeployment(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	if statements.Names.Deployment == "" {
		return nil
	}
	_, err := db.ExecContext(ctx, statements.NameDeployment, statements.Names.Deployment)
	if dialect.LacksTable(err) { // they stop at a version that has none
		return nil
	}
	if err != nil {
		return err
	}
	return statements.CheckDeployment(ctx, db)
}

// WriteMigrations prints the migrations after version from, in order, as plain SQL: for people who have a
// migration tool of their own. Whoever uses it does not call [Migrate].
func WriteMigrations(w io.Writer, config MigrateConfig, from int64) error {
	statements, err := config.statements()
	if err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	migrations, err := config.migrations(statements, from)
	if err != nil {
		return fmt.Errorf("write migrations: %w", err)
	}
	for _, migration := range migrations {
		if _, err := fmt.Fprintf(w, "-- %s\n\n%s\n", migration.Name, migration.Text()); err != nil {
			return fmt.Errorf("write migrations: %w", err)
		}
	}
	return nil
}
