package pgtail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Setup makes what the server needs so that its log can be read: a publication of the inserts into the table of messages. An empty name is
// that of the default. Run it after [postbox.Migrate], with a role that owns the tables and may create objects in the database. It can be run again. If the publication exists, the table is added to it.
// It returns an error that says what to set if the server does not write a log that can be read.
//
// There is no slot to make: each reader makes one that ends with its connection.
func Setup(ctx context.Context, db postbox.Database, publication string) error {
	publication, statements, err := setting(db, publication)
	if err != nil {
		return err
	}
	has, err := published(ctx, db.DB, statements, publication)
	text := statements.CreatePublication(publication)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return fmt.Errorf("pgtail: %w", err)
	case has.table:
		text = ""
	default:
		text = statements.AddToPublication(publication)
	}
	if text != "" {
		if _, err := db.DB.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("pgtail: make the publication %s, as the owner of the table and with CREATE on the database: %w", publication, err)
		}
	}
	if _, err := prerequisites(ctx, db.DB, statements, publication); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	return nil
}

// Check returns what is missing so that forwarders with this configuration can read the log, or nil. The error names all that it found. It connects with the DSN, which also shows whether its role may.
func Check(ctx context.Context, db postbox.Database, config Config) error {
	config.setDefaults()
	address, err := config.validate()
	if err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	_, statements, err := setting(db, config.Publication)
	if err != nil {
		return err
	}
	_, err = prerequisites(ctx, db.DB, statements, config.Publication)
	err = errors.Join(err, slotOfOurs(ctx, db.DB, statements))
	s, reached := connect(ctx, address)
	if reached == nil {
		defer s.close(ctx)
		if reached = s.identify(ctx, statements); reached == nil {
			reached = s.leadsTo(ctx, db.DB, statements)
		}
	}
	if err := errors.Join(err, reached); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	return nil
}

// Remove takes the table of messages out of the publication, and drops the publication if that was its last table. Processes that read the
// log stop reading it and poll. An empty name is that of the default. It can be run again.
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
	var tables int
	if err := db.DB.QueryRowContext(ctx, statements.PublishedCount, publication).Scan(&tables); err != nil {
		return fmt.Errorf("pgtail: read the publication %s: %w", publication, err)
	}
	text := statements.DropPublication(publication)
	if tables > 1 {
		text = statements.DropFromPublication(publication)
	}
	if _, err := db.DB.ExecContext(ctx, text); err != nil {
		return fmt.Errorf("pgtail: remove the publication %s: %w", publication, err)
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

// prerequisites returns a setupError that says what the server lacks, or the version of the publication.
func prerequisites(ctx context.Context, db *sql.DB, statements *dialect.Statements, publication string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var level string
	if err := db.QueryRowContext(ctx, statements.WalLevel).Scan(&level); err != nil {
		return "", fmt.Errorf("read wal_level: %w", err)
	}
	version, err = publishes(ctx, db, statements, publication)
	if level != "logical" {
		err = errors.Join(&setupError{what: fmt.Sprintf("wal_level is %s: set wal_level = logical and restart the server", level)}, err)
	}
	return version, err
}

// slotOfOurs returns a setupError if the name of the slot is taken by one that no reader has made.
func slotOfOurs(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	if err := untaken(ctx, db, statements); !errors.Is(err, errTaken) {
		return err
	}
	return nil
}

// untaken returns errTaken if another process has the slot.
func untaken(ctx context.Context, db *sql.DB, statements *dialect.Statements) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var slot string
	var ends bool
	switch err := db.QueryRowContext(ctx, statements.SlotTaken).Scan(&slot, &ends); {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for a slot: %w", err)
	case !ends:
		return &setupError{what: fmt.Sprintf("the slot %s was made by hand, and a reader makes its own: SELECT pg_drop_replication_slot('%s')", slot, slot)}
	}
	return errTaken
}
