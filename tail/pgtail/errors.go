package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// errTaken is returned if another process reads the log.
var errTaken = errors.New("another process reads the log")

// setupError is a reason that lasts until somebody changes the server, the role or the
// configuration.
type setupError struct {
	what string
	fix  string // what to do; may be empty
	err  error  // of the server; may be nil
}

func (e *setupError) Error() string {
	text := e.what
	if e.fix != "" {
		text += ": " + e.fix
	}
	if e.err != nil {
		text += fmt.Sprintf(": %v", e.err)
	}
	return text
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

const (
	// runSetup is what mends a log that is not set up.
	runSetup = `run pgtail.Setup, or "postbox log setup"`
	// runMigrate is what mends a missing table.
	runMigrate = "call postbox.Migrate first"
	// setLevel is what mends wal_level.
	setLevel = "set wal_level = logical and restart the server (ALTER SYSTEM SET wal_level = logical)"
)

// explainRole is [explain] for an error that has to do with the rights of a role.
func explainRole(role string, err error) error {
	err = explain(err)
	var wrong *setupError
	var from *pgconn.PgError
	if errors.As(err, &wrong) && errors.As(err, &from) && (from.Code == codeNoRight || from.Code == codeNoLogin) {
		wrong.fix = fmt.Sprintf("give it LOGIN and REPLICATION (%s), and let pg_hba.conf admit it to this database", makeReader(role))
	}
	return err
}

// explainTable is [explain] for an error of a session that looks for the table of messages in the
// schemas of DSN. A role does not see the tables of a schema into which it may not look, so that is
// found out through the database of the forwarder.
func (s *session) explainTable(ctx context.Context, db *sql.DB, statements *dialect.Statements, err error) error {
	var from *pgconn.PgError
	if !errors.As(err, &from) || from.Code != codeUndefinedTable && from.Code != codeNoRight {
		return explain(err)
	}
	var schema string
	may := true
	again := db.QueryRowContext(ctx, statements.Fill(selectRights), s.role).Scan(new(string), new(string), new(bool), new(string), new(bool), &schema, &may)
	if again == nil && !may {
		return &setupError{ // without the code of the server, which says that the table is missing
			"the role of DSN may not look into the schema " + schema, grantSchema(schema, s.role), errors.New(from.Message),
		}
	}
	if from.Code == codeUndefinedTable {
		return &setupError{"DSN does not lead to the table of messages", "give it the database and the search_path of the forwarder, or call postbox.Migrate if there is no such table", err}
	}
	return explain(err)
}

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
		return &setupError{"the server does not send its log", setLevel, err}
	case codeNoneLeft:
		return &setupError{"the server has no slot or sender left", "increase max_replication_slots and max_wal_senders, and restart the server", err}
	case codeNoRight, codeNoLogin, codeWrongPassword:
		return &setupError{"the role of DSN may not read the log", "give it LOGIN and REPLICATION (ALTER ROLE … REPLICATION), and let pg_hba.conf admit it to this database", err}
	case codeUndefinedTable:
		return &setupError{"a table is missing", runMigrate, err}
	case codeUndefinedObject:
		return &setupError{"the publication is missing", runSetup, err}
	case codeNotSupported:
		return &setupError{"the server cannot send its log to this connection", "DSN must lead to a primary PostgreSQL server, not to a standby or a pooler", err}
	default:
		return err
	}
}
