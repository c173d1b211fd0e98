package spool

import (
	"database/sql"
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// StatementsFor checks what a user says of the database and returns the statements for it. The error names all that
// is wrong.
func StatementsFor(d postbox.Dialect, tables postbox.Tables) (*dialect.Statements, error) {
	names, err := dialect.NewNames(tables.Schema, tables.Prefix, tables.Deployment)
	if err := errors.Join(d.Validate(), err, dialect.Kind(d).CheckSchema(tables.Schema)); err != nil {
		return nil, err
	}
	return dialect.New(dialect.Kind(d), names)
}

// StatementsIn is [StatementsFor] for a database that is there: its driver must be one for the dialect.
func StatementsIn(db *sql.DB, d postbox.Dialect, tables postbox.Tables) (*dialect.Statements, error) {
	statements, err := StatementsFor(d, tables)
	if err != nil {
		return nil, err
	}
	return statements, statements.CheckDriver(db)
}
