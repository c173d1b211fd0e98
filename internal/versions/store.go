// Package versions has the table that says which migrations have run.
package versions

import (
	"context"

	"github.com/pressly/goose/v3/database"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// dialects names our databases as goose does.
var dialects = map[dialect.Kind]database.Dialect{
	dialect.PostgreSQL: database.DialectPostgres,
	dialect.MySQL:      database.DialectMySQL,
	dialect.SQLite:     database.DialectSQLite3,
}

// Store returns goose's own store of versions, made safe for databases with several writers. On the
// others, goose makes its table in a transaction that excludes all others, and a process that comes
// second has to fail: it then tries again.
func Store(statements *dialect.Statements) (database.Store, error) {
	versions, err := database.NewStore(dialects[statements.Kind], statements.VersionTable)
	if err != nil || statements.Kind.Can().OneWriter {
		return versions, err
	}
	return store{Store: versions, create: statements.CreateVersion}, nil
}

// store is for MySQL and PostgreSQL. Goose creates its table and then inserts version 0. On MySQL,
// another process that starts in between, or after a crash there, finds a table without version 0.
// So this store reports the table only when that row is there, and creating it again does no harm.
// On PostgreSQL, goose looks for the name of the table in the catalog, which spells it differently:
// in small letters, and the schema without quotes.
type store struct {
	database.Store
	create string
}

// TableExists says whether the table is complete.
func (s store) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	versions, err := s.ListMigrations(ctx, db)
	if dialect.LacksTable(err) {
		return false, nil
	}
	return len(versions) > 0, err
}

// CreateVersionTable makes the table unless it is there.
func (s store) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, s.create)
	return err
}
