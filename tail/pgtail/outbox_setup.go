package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// SetupOutbox makes what the server needs so that publishers can write messages into its log: a permanent slot, and an empty publication of the same name. Run it after
// [postbox.Migrate], with a role that owns the tables and has CREATE on the database; the role of DSN makes the slot. It can be run again. It waits for the end of all
// transactions of the server that have written anything. It returns an error that says what to set if the server does not write a log that can be read, and
// [ErrSlotLost] if the log was set up before and the slot does not continue it.
//
// From then on the server keeps its log until a forwarder has read it, however much that is. Watch the metric postbox.log.retained, and call [RemoveOutbox] if the log is no longer used.
func SetupOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if err := a.lacks(); err != nil {
			return err
		}
		if a.known {
			return a.slot.check(a.stored, a.position)
		}
		return a.make(ctx)
	})
}

// AcceptLoss lets forwarders go on after [ErrSlotLost]. Messages that were committed to the log and not stored by then are lost. It makes a new slot if there is none that can be
// used. Rights and waiting are those of [SetupOutbox].
func AcceptLoss(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if !a.known {
			return errors.New("the log is not set up for messages: run pgtail.SetupOutbox")
		}
		if a.slot.exists && a.slot.invalid {
			if err := a.drop(ctx); err != nil {
				return err
			}
		}
		return a.make(ctx)
	})
}

// CheckOutbox returns what is missing so that forwarders with this configuration can read messages from the log, or nil. It connects with the DSN, which also shows whether its role may.
func CheckOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		err := a.lacks()
		if !a.known {
			return errors.Join(err, errors.New("the log is not set up for messages: run pgtail.SetupOutbox"))
		}
		return errors.Join(err, a.slot.check(a.stored, a.position))
	})
}

// RemoveOutbox drops the slot and the publication. Publishers with Log fail from then on. Stop them before, and stop the forwarders when these have read everything: it returns an error
// while a process reads from the slot, or if messages in the log were not read. It can be run again.
func RemoveOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if a.slot.exists && !a.slot.invalid {
			if err := a.unread(ctx); err != nil {
				return err
			}
		}
		if a.slot.exists {
			if err := a.drop(ctx); err != nil {
				return err
			}
		}
		for _, text := range []string{a.statements.RemoveLogPosition, a.statements.DropPublication(a.slot.name)} {
			if _, err := a.db.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("remove the publication and the position: %w", err)
			}
		}
		return nil
	})
}

// administration is what the functions of an operator find.
type administration struct {
	*session

	config     OutboxConfig
	db         *sql.DB
	statements *dialect.Statements
	level      string // wal_level
	slot       slotState
	known      bool // the log was set up
	stored     string
	position   dialect.LogPosition
}

// administer connects, looks, and calls do.
func administer(ctx context.Context, db postbox.Database, config OutboxConfig, do func(a *administration) error) error {
	address, err := config.parse()
	if err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	_, statements, err := setting(db, "")
	if err != nil {
		return err
	}
	a := &administration{config: config, db: db.DB, statements: statements}
	if a.session, err = connect(ctx, address); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	defer a.close(ctx)
	if err := a.look(ctx); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	if err := do(a); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	return nil
}

func (a *administration) look(ctx context.Context) (err error) {
	if err = a.identify(ctx, a.statements); err == nil {
		err = a.leadsTo(ctx, a.db, a.statements)
	}
	if err == nil {
		err = a.db.QueryRowContext(ctx, a.statements.WalLevel).Scan(&a.level)
	}
	if err == nil {
		a.slot, err = readSlot(ctx, a.db, a.statements)
	}
	if err != nil {
		return err
	}
	err = a.db.QueryRowContext(ctx, a.statements.LogPosition).Scan(&a.stored, &a.position.Position, &a.position.Part, &a.position.Epoch)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case dialect.LacksTable(err):
		return fmt.Errorf("a table is missing: call postbox.Migrate first: %w", err)
	case err != nil:
		return fmt.Errorf("read the position in the log: %w", err)
	}
	a.known = true
	return nil
}

const (
	// messagesVersion is the first version of PostgreSQL that sends messages of its log, failoverVersion the first with
	// slots that standbys keep.
	messagesVersion = 14
	failoverVersion = 17
)

// lacks returns what the server lacks.
func (a *administration) lacks() error {
	var lacks []error
	if a.level != "logical" {
		lacks = append(lacks, &setupError{what: fmt.Sprintf("wal_level is %s: set wal_level = logical and restart the server", a.level)})
	}
	if a.version() < messagesVersion {
		lacks = append(lacks, &setupError{what: fmt.Sprintf("messages in the log need PostgreSQL %d or later", messagesVersion)})
	}
	if a.config.Failover && a.version() < failoverVersion {
		lacks = append(lacks, &setupError{what: fmt.Sprintf("Failover needs PostgreSQL %d or later", failoverVersion)})
	}
	if a.known && (!a.slot.exists || a.slot.invalid) {
		lacks = append(lacks, a.slot.lost("the slot %s is gone or invalid", a.slot.name))
	}
	return errors.Join(lacks...)
}

// make makes the publication and the slot, if they are not there, and stores where to begin. The publication comes first,
// since the server looks for it as it was at each place in the log.
func (a *administration) make(ctx context.Context) error {
	if _, err := published(ctx, a.db, a.statements, a.slot.name); errors.Is(err, sql.ErrNoRows) {
		if _, err := a.db.ExecContext(ctx, a.statements.CreateEmptyPublication(a.slot.name)); err != nil {
			return fmt.Errorf("make the publication %s, with CREATE on the database: %w", a.slot.name, err)
		}
	} else if err != nil {
		return err
	}
	begin := a.slot.confirmed
	if a.slot.exists && begin == 0 {
		return fmt.Errorf("the slot %s is still being made by another process: run this again when that has ended", a.slot.name)
	}
	if !a.slot.exists {
		rows, err := a.query(ctx, a.statements.CreateOutboxSlot(a.slot.name, a.config.Failover))
		if err != nil {
			return explain(fmt.Errorf("make the slot %s: %w", a.slot.name, err))
		}
		if begin, err = number(rows); err != nil {
			return fmt.Errorf("make the slot %s: %w", a.slot.name, err)
		}
	}
	query := a.statements.SetLogPosition(a.slot.name, begin)
	if _, err := a.db.ExecContext(ctx, query.Text, query.Args...); err != nil {
		return fmt.Errorf("store the position in the log, as the owner of the tables: %w", err)
	}
	return nil
}

func (a *administration) drop(ctx context.Context) error {
	if _, err := a.query(ctx, a.statements.DropOutboxSlot(a.slot.name)); err != nil {
		return explain(fmt.Errorf("drop the slot %s: %w", a.slot.name, err))
	}
	a.slot.exists = false
	return nil
}

// unread returns an error if the slot has messages that were not confirmed.
func (a *administration) unread(ctx context.Context) error {
	rows, err := a.query(ctx, a.statements.UnreadMessages(a.slot.name, a.table))
	if err != nil {
		return explain(fmt.Errorf("look for messages in the log: %w", err))
	}
	unread, err := number(rows)
	if err != nil {
		return fmt.Errorf("look for messages in the log: %w", err)
	}
	if unread > 0 {
		return errors.New("the log has messages that were not stored, or were stored within the last seconds: stop the publishers, let a forwarder read for a few seconds, and stop it, too")
	}
	return nil
}

// number returns the number that a statement has returned.
func number(rows [][][]byte) (int64, error) {
	if len(rows) != 1 || len(rows[0]) != 1 {
		return 0, errors.New("the answer is not one number")
	}
	return strconv.ParseInt(string(rows[0][0]), 10, 64)
}
