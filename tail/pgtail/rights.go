package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
	if a.published && (!a.has.complete() || !a.trusted) {
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

// lackedRight are rights that a role lacks to store messages of the log.
type lackedRight struct{ role, rights, object string }

// lackedRights runs one of the statements that find them.
func lackedRights(ctx context.Context, db *sql.DB, text string) (lacked []lackedRight, err error) {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("look at the rights to store messages of the log: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var l lackedRight
		if err := rows.Scan(&l.role, &l.rights, &l.object); err != nil {
			return nil, fmt.Errorf("look at the rights to store messages of the log: %w", err)
		}
		lacked = append(lacked, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look at the rights to store messages of the log: %w", err)
	}
	return lacked, nil
}

// mayNotStore is the error for a role that lacks rights. err is that of the server, and may be nil.
func mayNotStore(lacked []lackedRight, err error) error {
	rights, grants := make([]string, len(lacked)), make([]string, len(lacked))
	for i, l := range lacked {
		rights[i], grants[i] = l.rights+" on "+l.object, dialect.GrantLogRight(l.rights, l.object, l.role)
	}
	return &setupError{
		what: fmt.Sprintf("the role %s may not store messages of the log, since it lacks %s", lacked[0].role, strings.Join(rights, " and ")), fix: strings.Join(grants, "; "), err: err,
	}
}

// explainStore names the rights that this role lacks, if err is that of a statement for which it lacks some.
func explainStore(ctx context.Context, db *sql.DB, statements *dialect.Statements, err error) error {
	if !dialect.LacksRight(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	lacked, again := lackedRights(ctx, db, statements.OwnLogRights)
	if again != nil || len(lacked) == 0 {
		return &setupError{"the role of the forwarder may not store messages of the log", "docs/security.md has the rights of each role", err}
	}
	return mayNotStore(lacked, err)
}

// roles returns which roles of forwarders may not store messages.
func (o *outboxState) roles(ctx context.Context) (lacks []Finding, err error) {
	if !o.known {
		return nil, nil
	}
	lacked, err := lackedRights(ctx, o.db, o.statements.ReadersLogRights)
	for len(lacked) > 0 {
		n := 1
		for n < len(lacked) && lacked[n].role == lacked[0].role {
			n++
		}
		lacks, lacked = append(lacks, problem(AboutRole, mayNotStore(lacked[:n], nil))), lacked[n:]
	}
	return lacks, err
}
