package spool

import (
	"errors"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// StatementsIn checks the user's description of the database, including that its driver is one for
// the dialect, and returns the statements for it. The error lists all problems.
func StatementsIn(db postbox.Database) (*dialect.Statements, error) {
	statements, err := dialect.For(dialect.Kind(db.Dialect), db.Schema, db.Prefix, db.Deployment)
	if statements != nil {
		statements.AnyServer = db.AnyServer
	}
	if db.DB == nil {
		err = errors.Join(errNoDatabase, err)
	}
	if err != nil {
		return nil, err
	}
	return statements, statements.CheckDriver(db.DB)
}

var errNoDatabase = errors.New("the database is nil: set DB of the postbox.Database")
