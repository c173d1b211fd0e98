package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
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

// audited executes a statement in a transaction that also writes the row of the action to the audit
// log.
func audited(ctx context.Context, db *sql.DB, statements *dialect.Statements, action, publication, text string) error {
	act := dialect.AuditRow{Operation: postbox.NewMessageID(), Actor: spool.UserName(), Action: action, Subject: "publication " + publication, Affected: 1}
	return spool.InTx(ctx, db, statements, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
		return spool.Run(ctx, tx, statements.RecordAct(act))
	})
}
