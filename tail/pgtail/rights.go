package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// mayPublish returns a setupError that names the rights which the role of a set-up lacks to make the publication, or to change it if it exists.
func mayPublish(ctx context.Context, db *sql.DB, statements *dialect.Statements, exists bool) error {
	var role, owner, database string
	var owns, creates bool
	if err := db.QueryRowContext(ctx, statements.PublicationRights).Scan(&role, &owner, &owns, &database, &creates); err != nil {
		return fmt.Errorf("look at the rights of this role: %w", err)
	}
	var lacks []error
	if !owns {
		lacks = append(lacks, ownedBy("table "+statements.Names.Table("messages"), owner, role))
	}
	if !creates && !exists {
		lacks = append(lacks, &setupError{
			what: fmt.Sprintf("the role %s may not make publications in the database %s", role, database), fix: dialect.GrantCreate(database, role),
		})
	}
	return errors.Join(lacks...)
}

// ownedBy is the error of a role that lacks the rights of an owner.
func ownedBy(what, owner, role string) error {
	return &setupError{
		what: fmt.Sprintf("the role %s does not own the %s", role, what),
		fix:  fmt.Sprintf("run this as the owner of the %s, %s, or as a member of that role (%s)", what, owner, dialect.GrantOwner(owner, role)),
	}
}

func (a *administration) mayPublish(ctx context.Context) error {
	err := mayPublish(ctx, a.db, a.statements, a.published)
	if a.published && !a.has.complete() {
		err = errors.Join(err, a.ownsPublication(ctx))
	}
	return err
}

// ownsPublication returns a setupError if the role does not have the rights of the publication's owner.
func (a *administration) ownsPublication(ctx context.Context) error {
	var role, owner string
	var owns bool
	if err := a.db.QueryRowContext(ctx, a.statements.PublicationOwner, a.slot.name).Scan(&role, &owner, &owns); err != nil {
		return fmt.Errorf("look at the owner of the publication %s: %w", a.slot.name, err)
	}
	if !owns {
		return ownedBy("publication "+a.slot.name, owner, role)
	}
	return nil
}

// mayRemove returns a setupError that names the rights which the role lacks to remove the position and the publication, if they are there.
func (a *administration) mayRemove(ctx context.Context) error {
	var role, owner string
	var owns, ignored bool
	var lacks []error
	if a.known {
		if err := a.db.QueryRowContext(ctx, a.statements.PublicationRights).Scan(&role, &owner, &owns, new(string), &ignored); err != nil {
			return fmt.Errorf("look at the rights of this role: %w", err)
		}
		if !owns {
			lacks = append(lacks, ownedBy("table "+a.statements.Names.Table("log_position"), owner, role))
		}
	}
	if a.published {
		lacks = append(lacks, a.ownsPublication(ctx))
	}
	return errors.Join(lacks...)
}

// audited calls do in a transaction that also writes the row of the action.
func audited(ctx context.Context, db *sql.DB, statements *dialect.Statements, act *operate.Act, do func(tx *sql.Tx) error) error {
	act.Affected = 1
	return spool.InTx(ctx, db, statements, func(tx *sql.Tx) error {
		if do != nil {
			if err := do(tx); err != nil {
				return err
			}
		}
		return operate.NewAuditor(statements, "").Record(ctx, tx, act)
	})
}
