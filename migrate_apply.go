package postbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// migrator applies migrations one by one. Each is a transaction that takes the lock of all who migrate, and looks at the version once
// more. So nothing is kept from one transaction to the next, and it works through a pooler that gives each one another connection.
type migrator struct {
	db         *sql.DB
	statements *dialect.Statements
	migrations []dialect.Migration
}

const (
	// migratePause is how long others have the tables for themselves, before a migration that found them locked is tried again.
	migratePause = time.Second
	// migratePatience is how long a migration is tried again.
	migratePatience = 10 * time.Minute
	// SQLite's own wait for its lock comes on top of these.
	sqliteMigratePause    = 50 * time.Millisecond
	sqliteMigratePatience = 2500 * time.Millisecond

	unlockTimeout = 10 * time.Second
)

// run applies all migrations that are missing.
func (m migrator) run(ctx context.Context) error {
	// Who finds the newest version takes no lock, and needs no right to create tables.
	at, err := m.version(ctx, m.db)
	if err != nil && !dialect.LacksTable(err) {
		return err
	}
	for _, migration := range m.migrations {
		if migration.Version <= at {
			continue
		}
		for part := range migration.Parts {
			if err := m.insist(ctx, migration, part); err != nil {
				return fmt.Errorf("migration %d: %w", migration.Version, err)
			}
		}
	}
	return nil
}

// insist applies a part of a migration, again while other transactions are in its way: it waits for none of them for long, since all
// who use the table would then wait behind it.
func (m migrator) insist(ctx context.Context, migration dialect.Migration, part int) error {
	pause, patience := migratePause, migratePatience
	if m.statements.Kind == dialect.SQLite {
		pause, patience = sqliteMigratePause, sqliteMigratePatience
	}
	until := time.Now().Add(patience)
	for {
		more, err := m.apply(ctx, migration, part)
		switch {
		case err == nil && !more:
			return nil
		case err == nil:
			continue
		case m.statements.Kind.Classify(err) != dialect.Conflict:
			return err
		case time.Now().After(until):
			return fmt.Errorf("other transactions have been in its way for %s, end them or migrate at another time: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last error: %w)", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// apply applies a part of a migration, unless that is there, and says whether it has to be applied again.
func (m migrator) apply(ctx context.Context, migration dialect.Migration, part int) (more bool, err error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	defer m.unlock(ctx, conn)
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: m.statements.Isolation}) // it must see what was committed while it waited for the lock
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := m.lock(ctx, tx); err != nil {
		return false, err
	}
	if _, err := tx.ExecContext(ctx, m.statements.CreateVersion); err != nil {
		return false, err
	}
	if at, err := m.version(ctx, tx); err != nil || at >= migration.Version {
		return false, err
	}
	more, err = m.execute(ctx, tx, migration, part)
	if err != nil {
		return false, err
	}
	return more, tx.Commit()
}

// execute runs the statements of a part, and notes the version with the last one.
func (m migrator) execute(ctx context.Context, tx *sql.Tx, migration dialect.Migration, part int) (more bool, err error) {
	these := migration.Parts[part]
	for _, statement := range these.Statements {
		result, err := tx.ExecContext(ctx, statement)
		if err != nil {
			return false, err
		}
		if these.Repeat {
			moved, err := result.RowsAffected()
			if err != nil {
				return false, err
			}
			more = more || moved > 0
		}
	}
	if part == len(migration.Parts)-1 && !more {
		_, err = tx.ExecContext(ctx, m.statements.NoteVersion, migration.Version)
	}
	return more, err
}

// lock keeps others from migrating these tables: on SQLite a transaction that writes does.
func (m migrator) lock(ctx context.Context, tx *sql.Tx) error {
	if m.statements.MigrateLock == "" {
		return nil
	}
	var ours int
	if err := tx.QueryRowContext(ctx, m.statements.MigrateLock, m.lockName()).Scan(&ours); err != nil {
		return err
	}
	if ours != 1 {
		return errors.New("another process has held the migration lock for an hour: is it stuck?")
	}
	if m.statements.MigrateImpatience == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, m.statements.MigrateImpatience)
	return err
}

// unlock gives up a lock that the end of the transaction leaves, also where ctx has ended: the connection goes back to the pool.
func (m migrator) unlock(ctx context.Context, conn *sql.Conn) {
	if m.statements.MigrateUnlock == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	_, _ = conn.ExecContext(ctx, m.statements.MigrateUnlock, m.lockName())
}

func (m migrator) lockName() string { return "postbox migrate " + m.statements.VersionTable }

// version is that of the tables.
func (m migrator) version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (at int64, err error) {
	err = db.QueryRowContext(ctx, m.statements.Version).Scan(&at)
	return at, err
}
