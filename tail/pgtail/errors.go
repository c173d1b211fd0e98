package pgtail

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// errTaken is returned if another process reads the log.
var errTaken = errors.New("another process reads the log")

// setupError is a reason that lasts until somebody changes the server, the role or the configuration.
type setupError struct {
	what string
	err  error
}

func (e *setupError) Error() string {
	if e.err == nil {
		return e.what
	}
	return fmt.Sprintf("%s: %v", e.what, e.err)
}

// Unwrap returns the error of the server.
func (e *setupError) Unwrap() error { return e.err }

// Codes of PostgreSQL's errors.
const (
	codeDuplicate       = "42710"
	codeInUse           = "55006"
	codeState           = "55000"
	codeNoneLeft        = "53400"
	codeNoRight         = "42501"
	codeNoLogin         = "28000"
	codeWrongPassword   = "28P01"
	codeNotSupported    = "0A000"
	codeUndefinedObject = "42704"
	codeUndefinedTable  = "42P01"
)

// explain tells what to do about an error of the server.
func explain(err error) error {
	var from *pgconn.PgError
	if !errors.As(err, &from) {
		return err
	}
	switch from.Code {
	case codeDuplicate, codeInUse:
		return fmt.Errorf("%w: %w", errTaken, err)
	case codeState:
		return &setupError{"the server does not send its log: set wal_level = logical and restart it", err}
	case codeNoneLeft:
		return &setupError{"the server has no slot or sender left: increase max_replication_slots and max_wal_senders", err}
	case codeNoRight, codeNoLogin, codeWrongPassword:
		return &setupError{"the role of DSN may not read the log: give it LOGIN and REPLICATION (ALTER ROLE … REPLICATION), and let pg_hba.conf admit it to this database", err}
	case codeUndefinedObject, codeUndefinedTable:
		return &setupError{"the publication or a table is missing: run pgtail.Setup, after postbox.Migrate", err}
	case codeNotSupported:
		return &setupError{"the server cannot send its log to this connection: DSN must lead to a primary PostgreSQL server, not to a standby or a pooler", err}
	default:
		return err
	}
}
