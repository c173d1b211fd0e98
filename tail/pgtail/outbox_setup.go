package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// SetupOutbox makes what the server needs so that publishers can write messages into its log: a permanent slot, and an empty publication of the same name. Run it after
// [postbox.Migrate], with a role that owns the tables and has CREATE on the database; the role of DSN makes the slot. It can be run again. It waits for the end of all
// transactions of the server that have written anything. It returns an error that says what to set if the server does not write a log that can be read, and
// [ErrSlotLost] if the log was set up before and the slot does not continue it. If [OutboxConfig.NoFailover] has changed, it changes the slot, which no process may read meanwhile.
//
// From then on the server keeps its log until a forwarder has read it, however much that is. Watch the metric postbox.log.retained, and call [RemoveOutbox] if the log is no longer used.
func SetupOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if err := problems(a.lacks(a.seen)); err != nil {
			return err
		}
		if a.known {
			return a.keep(ctx)
		}
		if err := a.mayPublish(ctx); err != nil {
			return err
		}
		return a.make(ctx, operate.ActSetUpLog)
	})
}

// AcceptLoss lets forwarders go on after [ErrSlotLost]. Messages that were committed to the log and not stored by then are lost. It makes a new slot if there is none that can be
// used. Rights and waiting are those of [SetupOutbox].
func AcceptLoss(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if !a.known {
			return notSetUp()
		}
		if a.slot.exists && a.slot.invalid {
			if err := a.drop(ctx); err != nil {
				return err
			}
		}
		return a.make(ctx, operate.ActAcceptLoss)
	})
}

// CheckOutbox returns what is missing so that forwarders with this configuration can read messages from the log, or nil. It connects with the DSN, which also shows whether its role may.
// [InspectOutbox] says more.
func CheckOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		err := problems(a.lacks(a.seen))
		if !a.known {
			err = errors.Join(err, notSetUp())
		}
		return err
	})
}

// administration is a session of an operator, and what it finds.
type administration struct {
	outboxState

	session *session
	seen    Slot
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
	a := &administration{outboxState: outboxState{config: config, db: db.DB, statements: statements}}
	if err := a.look(ctx, db.DB); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	if a.session, err = connect(ctx, address); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	defer a.session.close(ctx)
	if err = a.session.identify(ctx, statements); err == nil {
		err = a.session.leadsTo(ctx, db.DB, statements)
	}
	if err == nil {
		err = do(a)
	}
	if err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	return nil
}

// look reads what the server has, before the session takes a sender.
func (a *administration) look(ctx context.Context, db *sql.DB) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if a.server, a.seen, err = readState(ctx, db, a.statements, dialect.OutboxSlotSuffix); err != nil {
		return err
	}
	return a.read(ctx)
}

// keep changes the slot, which is set up, to what the configuration says of failovers.
func (a *administration) keep(ctx context.Context) error {
	if err := a.publish(ctx); err != nil {
		return err
	}
	wanted := !a.config.NoFailover
	if a.server.version < failoverVersion || a.seen.Failover == wanted {
		return nil
	}
	if _, err := a.session.query(ctx, a.statements.AlterSlotFailover(a.slot.name, wanted)); err != nil {
		return explain(fmt.Errorf("change the slot %s for failovers, for which no forwarder may read from it: %w", a.slot.name, err))
	}
	return a.audited(ctx, operate.ActSetUpLog, "failover="+strconv.FormatBool(wanted), nil)
}

// publish makes the publication if it is not there.
func (a *administration) publish(ctx context.Context) error {
	if a.published {
		return nil
	}
	if _, err := a.db.ExecContext(ctx, a.statements.CreateEmptyPublication(a.slot.name)); err != nil {
		return fmt.Errorf("make the publication %s, with CREATE on the database: %w", a.slot.name, err)
	}
	return nil
}

// make makes the publication and the slot, if they are not there, and stores where to begin. The publication comes first,
// since the server looks for it as it was at each place in the log.
func (a *administration) make(ctx context.Context, action string) error {
	if err := a.publish(ctx); err != nil {
		return err
	}
	begin := a.slot.confirmed
	if a.slot.exists && begin == 0 {
		return fmt.Errorf("the slot %s is still being made by another process: run this again when that has ended", a.slot.name)
	}
	if !a.slot.exists {
		failover := !a.config.NoFailover && a.server.version >= failoverVersion
		rows, err := a.session.query(ctx, a.statements.CreateOutboxSlot(a.slot.name, failover))
		if err != nil {
			return explain(fmt.Errorf("make the slot %s: %w", a.slot.name, err))
		}
		if begin, err = number(rows); err != nil {
			return fmt.Errorf("make the slot %s: %w", a.slot.name, err)
		}
	}
	return a.audited(ctx, action, "", func(tx *sql.Tx) error {
		query := a.statements.SetLogPosition(a.slot.name, begin)
		if _, err := tx.ExecContext(ctx, query.Text, query.Args...); err != nil {
			return fmt.Errorf("store the position in the log, as the owner of the tables: %w", err)
		}
		return nil
	})
}

// audited calls do in a transaction that also writes the row of the action.
func (a *administration) audited(ctx context.Context, action, note string, do func(tx *sql.Tx) error) error {
	act := operate.NewAct(action, "").On("slot %s", a.slot.name).Noting(note)
	return audited(ctx, a.db, a.statements, act, do)
}

func (a *administration) drop(ctx context.Context) error {
	if _, err := a.session.query(ctx, a.statements.DropOutboxSlot(a.slot.name)); err != nil {
		return explain(fmt.Errorf("drop the slot %s: %w", a.slot.name, err))
	}
	a.slot.exists = false
	return nil
}

// number returns the number that a statement has returned.
func number(rows [][][]byte) (int64, error) {
	if len(rows) != 1 || len(rows[0]) != 1 {
		return 0, errors.New("the answer is not one number")
	}
	return strconv.ParseInt(string(rows[0][0]), 10, 64)
}
