package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// publishes returns a setupError that says what the publication lacks. The version is another one
// after each change of the publication.
func publishes(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (has contents, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	has, err = published(ctx, db, statements, publication)
	lacks, fix, table := "", runSetup, statements.Names.Table("messages")
	switch {
	case errors.Is(err, sql.ErrNoRows):
		lacks = "there is no publication " + publication
	case err != nil:
		return has, err
	case !has.table:
		lacks = fmt.Sprintf("the publication %s does not include the table %s", publication, table)
	case !has.allRows:
		lacks = fmt.Sprintf("the publication %s must send all rows and columns of the table %s", publication, table)
		fix = `run pgtail.Remove and pgtail.Setup, or "postbox log remove" and "postbox log setup"`
	case !has.inserts:
		lacks = fmt.Sprintf("the publication %s must publish inserts alone", publication)
		fix = publishInserts(publication)
	}
	if lacks != "" {
		return has, &setupError{what: lacks, fix: fix}
	}
	return has, nil
}

// contents is what a publication sends.
type contents struct {
	inserts bool // and nothing else
	table   bool // the table of messages
	allRows bool // and all columns
	version string
	lacks   []string // tables whose rows tell that something has changed
	tables  int      // how many it includes
}

// tells reports whether the publication tells each change, so that a forwarder need not poll to
// notice it.
func (c contents) tells() bool { return len(c.lacks) == 0 }

// missing returns the tables that the publication lacks.
func (c contents) missing() []string {
	if c.table {
		return c.lacks
	}
	return append([]string{"messages"}, c.lacks...)
}

// published returns what a publication has; the error is [sql.ErrNoRows] if there is none.
func published(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (has contents, err error) {
	var lacks string
	err = db.QueryRowContext(ctx, statements.Fill(selectPublication), publication).Scan(&has.inserts, &has.table, &has.allRows, &has.version, &lacks, &has.tables)
	if err != nil {
		err = fmt.Errorf("read the publication %s: %w", publication, err)
	}
	has.lacks = strings.Fields(lacks)
	return has, err
}

// watchedPublication is a publication while the log is read.
type watchedPublication struct {
	outbox        tail.Outbox
	name, version string
	tell          func(tells bool)
	change        func(tail.Change)
}

// lacks returns a setupError that says what the publication lacks.
func (w *watchedPublication) lacks(ctx context.Context) error {
	has, err := publishes(ctx, w.outbox.DB, w.outbox.Statements, w.name)
	w.tell(err == nil && has.tells())
	return err
}

// check makes all outboxes read if the publication was changed since the last check: the log may
// lack what was committed before the change.
func (w *watchedPublication) check(ctx context.Context) error {
	has, err := publishes(ctx, w.outbox.DB, w.outbox.Statements, w.name)
	if has.version != w.version {
		w.version = has.version
		w.tell(err == nil && has.tells())
		w.change(tail.Change{})
	}
	return err
}
