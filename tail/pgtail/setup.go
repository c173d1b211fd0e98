package pgtail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Setup makes what the server needs so that its log can be read: a publication of the inserts into
// the table of messages, and into those that tell of messages that wait, actions of operators and
// processes that join. With these an idle forwarder hardly polls. An empty name is that of the
// default. Run it after [postbox.Migrate], with a role that owns the tables and may create objects
// in the database. It can be run again, and by several processes at a time. If the publication
// exists, the tables that it lacks are added to it. It returns an error that says what to set if
// the server does not write a log that can be read, and which right the role lacks.
//
// There is no slot to make: each reader makes one that ends with its connection.
func Setup(ctx context.Context, db postbox.Database, publication string) error {
	publication, statements, err := setting(db, publication)
	if err != nil {
		return err
	}
	made, err := publish(ctx, db.DB, statements, publication)
	if err != nil && !made {
		if has, again := published(ctx, db.DB, statements, publication); again == nil && has.table && has.tells() { // by another process
			err = nil
		}
	}
	if err == nil {
		_, err = prerequisites(ctx, db.DB, statements, publication)
	}
	if err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	return nil
}

// publish adds the tables to the publication, which it makes if there is none.
func publish(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (made bool, err error) {
	has, err := published(ctx, db, statements, publication)
	missing := has.missing()
	var text string
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if err := mayPublish(ctx, db, statements); err != nil {
			return false, err
		}
		text = createPublication(statements.Names, publication)
	case err != nil:
		return false, err
	case len(missing) == 0:
		return false, nil
	default:
		text = addToPublication(statements.Names, publication, missing)
	}
	err = audited(ctx, db, statements, "log setup", publication, text)
	if err != nil {
		return false, fmt.Errorf("make the publication %s, as the owner of the table and with CREATE on the database: %w", publication, err)
	}
	return true, nil
}

// Remove takes the tables of Postbox out of the publication, and drops the publication if these
// were all. Processes that read the log stop reading it and poll. An empty name is that of the
// default. It can be run again. Rights are those of [Setup].
func Remove(ctx context.Context, db postbox.Database, publication string) error {
	publication, statements, err := setting(db, publication)
	if err != nil {
		return err
	}
	has, err := published(ctx, db.DB, statements, publication)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !has.table {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	text := dropPublication(publication)
	ours := slices.DeleteFunc(publishedTables(), func(table string) bool { return slices.Contains(has.lacks, table) })
	if has.tables > len(ours) {
		text = dropFromPublication(statements.Names, publication, ours)
	}
	err = audited(ctx, db.DB, statements, "log remove", publication, text)
	if err != nil {
		return fmt.Errorf("pgtail: remove the publication %s, as its owner: %w", publication, err)
	}
	return nil
}

// setting checks what Setup and the others are given.
func setting(db postbox.Database, publication string) (string, *dialect.Statements, error) {
	publication = cmp.Or(publication, defaultPublication)
	statements, err := spool.StatementsIn(db)
	if err == nil && !statements.Kind.Can().Tails {
		err = fmt.Errorf("the log of %s cannot be read: only that of PostgreSQL can", statements.Kind.Can().Name)
	}
	if err := errors.Join(err, checkPublication(publication)); err != nil {
		return "", nil, fmt.Errorf("pgtail: %w", err)
	}
	return publication, statements, nil
}

// prerequisites returns a setupError that says what the server lacks, or what the publication has.
func prerequisites(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (has contents, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	server, err := readServer(ctx, db, statements)
	if err != nil {
		return has, err
	}
	has, err = publishes(ctx, db, statements, publication)
	if server.level != "logical" {
		err = errors.Join(&setupError{what: "wal_level is " + server.level, fix: setLevel}, err)
	}
	return has, err
}

// madeByHand is the error for a slot that has the name of those that readers make.
func madeByHand(slot string) error {
	return &setupError{what: fmt.Sprintf("the slot %s was made by hand, and a reader makes its own", slot), fix: dropSlot(slot)}
}

// untaken returns errTaken if another process has the slot.
func untaken(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	here, err := identify(ctx, db, statements)
	if err != nil {
		return err
	}
	switch slot, err := readSlot(ctx, db, statements, here.slot); {
	case err != nil || !slot.Exists:
		return err
	case !slot.temporary:
		return madeByHand(slot.Name)
	}
	return errTaken
}
