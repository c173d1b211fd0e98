package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// publishes returns a setupError that says what the publication lacks. The version is another one after each change of the publication.
func publishes(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	has, err := published(ctx, db, statements, publication)
	lacks, fix, table := "", runSetup, statements.Names.Table("messages")
	switch {
	case errors.Is(err, sql.ErrNoRows):
		lacks = "there is no publication " + publication
	case err != nil:
		return "", err
	case !has.table:
		lacks = fmt.Sprintf("the publication %s does not include the table %s", publication, table)
	case !has.allRows:
		lacks = fmt.Sprintf("the publication %s must send all rows and columns of the table %s", publication, table)
		fix = `run pgtail.Remove and pgtail.Setup, or "postbox log remove" and "postbox log setup"`
	case !has.inserts:
		lacks = fmt.Sprintf("the publication %s must publish inserts alone", publication)
		fix = statements.PublishInserts(publication)
	}
	if lacks != "" {
		return "", &setupError{what: lacks, fix: fix}
	}
	return has.version, nil
}

// contents is what a publication sends.
type contents struct {
	inserts bool // and nothing else
	table   bool // the table of messages
	allRows bool // and all columns
	version string
}

// published returns what a publication has; the error is [sql.ErrNoRows] if there is none.
func published(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (has contents, err error) {
	err = db.QueryRowContext(ctx, statements.Publication, publication).Scan(&has.inserts, &has.table, &has.allRows, &has.version)
	if err != nil {
		err = fmt.Errorf("read the publication %s: %w", publication, err)
	}
	return has, err
}

// watchedPublication is a publication while the log is read.
type watchedPublication struct {
	outbox        tail.Outbox
	name, version string
}

// lacks returns a setupError that says what the publication lacks.
func (w *watchedPublication) lacks(ctx context.Context) error {
	_, err := publishes(ctx, w.outbox.DB, w.outbox.Statements, w.name)
	return err
}

// check calls gap if the publication was changed since the last check: the log may lack what was committed before the change.
func (w *watchedPublication) check(ctx context.Context, gap func()) error {
	version, err := publishes(ctx, w.outbox.DB, w.outbox.Statements, w.name)
	if version != w.version {
		w.version = version
		gap()
	}
	return err
}
