package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// mayPublish returns a setupError that names the rights which the role of a set-up lacks to make
// the publication.
func mayPublish(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	var role, owner, database string
	var owns, creates bool
	err := db.QueryRowContext(ctx, statements.Fill(selectRights), nil).Scan(&role, &owner, &owns, &database, &creates, new(string), new(bool))
	if err != nil {
		return fmt.Errorf("look at the rights of this role: %w", err)
	}
	var lacks []error
	if !owns {
		table := statements.Names.Table("messages")
		lacks = append(lacks, &setupError{
			what: fmt.Sprintf("the role %s does not own the table %s", role, table),
			fix: fmt.Sprintf("run this as the owner of the table %s, %s, or as a member of that role (%s)",
				table, owner, grantOwner(owner, role)),
		})
	}
	if !creates {
		lacks = append(lacks, &setupError{
			what: fmt.Sprintf("the role %s may not make publications in the database %s", role, database), fix: grantCreate(database, role),
		})
	}
	return errors.Join(lacks...)
}

// audited calls do in a transaction that also writes the row of the action.
func audited(ctx context.Context, db *sql.DB, statements *dialect.Statements, act *audit.Act, do func(tx *sql.Tx) error) error {
	act.Affected = 1
	return spool.InTx(ctx, db, statements, func(tx *sql.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return audit.NewAuditor(statements, "").Record(ctx, tx, act)
	})
}
