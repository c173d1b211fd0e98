package pgtail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// SetupOutbox makes what the server needs so that publishers can write messages into its log: a permanent slot, and a publication of the same name. With the publication an idle forwarder hears of rows, and hardly polls. Run it after
// [postbox.Migrate], with a role that owns the tables and has CREATE on the database; the role of DSN makes the slot. It can be run again, and by several processes at a time, of which one waits for another. It adds to the publication what an earlier version did not have in it. If the publication was dropped, renamed or altered,
// publishers get errors until SetupOutbox has made it again and found that the server can read its log, for which it makes a copy of the slot for a moment. It waits for the end of all
// transactions of the server that have written anything. It returns an error that says what to set if the server does not write a log that can be read, and
// [ErrSlotLost] if the log was set up before and the slot does not continue it, or the server cannot read the log. If [OutboxConfig.NoFailover] has changed, it changes the slot, which no process may read meanwhile.
//
// From then on the server keeps its log until a forwarder has read it, however much that is. Watch the metric postbox.log.retained, and call [RemoveOutbox] if the log is no longer used.
func SetupOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if err := a.alone(ctx); err != nil {
			return err
		}
		if err := problems(a.lacks(a.seen)); err != nil {
			return err
		}
		if !a.known || !a.has.complete() || !a.trusted {
			if err := a.mayPublish(ctx); err != nil {
				return err
			}
		}
		if a.known {
			return a.keep(ctx)
		}
		_, err := a.make(ctx, operate.ActSetUpLog)
		return err
	})
}

// ErrNothingLost is returned by [AcceptLoss] if forwarders can read the log from where it was stored up to.
var ErrNothingLost = errors.New("nothing is lost: forwarders can go on, and there is no loss to accept")

// AcceptLoss lets forwarders go on after [ErrSlotLost], and returns from when to when messages may be missing. Messages that are committed to the log afterwards are read. Those that were committed before, and not stored, are lost, also if publishers
// reported no error: so call it first, and publish again afterwards. The audit log has what it returns. It makes a new slot and publication if there are none that can be
// used, and drops a slot of this database that belonged to the tables before they were restored. It drops no slot of another program. It returns [ErrNothingLost] if there is no loss, also if a call before it was cut off after it had
// done everything. To find out, it reads the messages in the log that no forwarder has confirmed, and leaves them there. If a process still reads from the slot after five seconds, nothing is lost. It needs the rights of [SetupOutbox], and waits as that does.
func AcceptLoss(ctx context.Context, db postbox.Database, config OutboxConfig) (loss Loss, err error) {
	err = administer(ctx, db, config, func(a *administration) (err error) {
		if err := a.alone(ctx); err != nil {
			return err
		}
		if !a.known {
			return notSetUp()
		}
		if a.slot.foreign {
			return a.foreign()
		}
		if a.slot.making() { // by a call that was cut off: what the slot will continue is not known yet
			return making(a.seen)
		}
		if err := a.mayPublish(ctx); err != nil {
			return err
		}
		sound := a.lost() == nil
		if sound {
			if err := a.readerEnds(ctx); err != nil {
				return err
			}
		}
		var blocked error
		if !a.slot.invalid {
			blocked = a.tried(ctx)
		}
		if errors.Is(blocked, errTaken) { // by a forwarder that was started again, and may end in a moment for this very reason
			blocked = a.copyTried(ctx)
		}
		switch {
		case blocked != nil && !errors.Is(blocked, ErrSlotLost):
			return blocked
		case sound && blocked == nil:
			return errors.Join(ErrNothingLost, a.unpublished())
		}
		if a.slot.exists && (a.slot.invalid || blocked != nil) {
			if err := a.dropInTime(ctx); err != nil {
				return err
			}
			a.slot.exists = false
		}
		if err := a.dropFormer(ctx); err != nil {
			return err
		}
		loss, err = a.make(ctx, operate.ActAcceptLoss)
		return err
	})
	return loss, err
}

// CheckOutbox returns what is missing so that forwarders with this configuration can read messages from the log, or nil. It connects with the DSN, which also shows whether its role may.
// If no process reads the log, it tries whether the messages that no forwarder has confirmed can be read, and leaves them there. [InspectOutbox] says more.
func CheckOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		err := problems(a.lacks(a.seen))
		if !a.known {
			return errors.Join(err, a.cutOff(a.seen))
		}
		if err = errors.Join(err, a.occupied(a.seen)); err != nil {
			return err
		}
		return cmp.Or(a.blocked(ctx), a.unpublished())
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
	if err = a.session.identify(ctx, db.DB, statements); err == nil {
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

// keep mends the publication, and changes the slot, which is set up, to what the configuration says of failovers.
func (a *administration) keep(ctx context.Context) error {
	if err := a.publish(ctx); err != nil {
		return err
	}
	if err := a.vouch(ctx); err != nil {
		return err
	}
	if err := a.blocked(ctx); err != nil {
		return err
	}
	wanted := !a.config.NoFailover
	if a.server.version < failoverVersion || a.seen.Failover == wanted {
		return nil
	}
	if a.slot.active { // for whose end the server would wait
		return &setupError{
			what: fmt.Sprintf("the slot %s cannot be changed for failovers while process %d of the server reads from it", a.slot.name, a.seen.PID),
			fix:  "stop the forwarders for a moment, and " + runSetupOutbox + ", again",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout) // one may have begun to read
	defer cancel()
	if _, err := a.session.query(ctx, a.statements.AlterSlotFailover(a.slot.name, wanted)); err != nil {
		return explain(fmt.Errorf("change the slot %s for failovers, for which no forwarder may read from it: %w", a.slot.name, err))
	}
	return a.audited(ctx, operate.ActSetUpLog, "failover="+strconv.FormatBool(wanted), nil)
}

// publish makes the publication if it is not there, and makes it complete.
func (a *administration) publish(ctx context.Context) error {
	if a.has.complete() {
		return nil
	}
	lacks := dialect.PublishedTables()
	if a.published {
		lacks = a.has.missing()
	}
	return spool.InTx(ctx, a.db, a.statements, func(tx *sql.Tx) error {
		for _, text := range a.statements.PublishFor(a.slot.name, a.published, a.has.inserts, lacks, a.server.version >= columnsVersion) {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("make the publication %s: %w", a.slot.name, err)
			}
		}
		return nil
	})
}

// make makes the publication and the slot, if they are not there, and stores where to begin. The publication comes first,
// since the server looks for it as it was at each place in the log.
func (a *administration) make(ctx context.Context, action string) (loss Loss, err error) {
	if err := a.publish(ctx); err != nil {
		return loss, err
	}
	if a.slot.exists && a.slot.foreign {
		return loss, a.foreign()
	}
	if a.slot.making() {
		return loss, making(a.seen)
	}
	begin, reserved := a.slot.confirmed, dialect.AllReserved // nothing is known of who has read from a slot that is there
	if a.slot.exists {
		if err := a.vouch(ctx); err != nil {
			return loss, err
		}
	} else {
		if err := a.mark(ctx); err != nil { // the slot has nothing that was written before it
			return loss, err
		}
		failover := !a.config.NoFailover && a.server.version >= failoverVersion
		if begin, err = a.makeSlot(ctx, failover); err != nil {
			return loss, err
		}
		reserved = begin
	}
	note := ""
	if a.known {
		if loss, err = a.loss(ctx, begin); err != nil {
			return loss, err
		}
		note = loss.String()
	}
	return loss, a.audited(ctx, action, note, func(tx *sql.Tx) error {
		query := a.statements.SetLogPosition(a.slot.name, begin, reserved)
		if _, err := tx.ExecContext(ctx, query.Text, query.Args...); err != nil {
			return fmt.Errorf("store the position in the log, as the owner of the tables: %w", err)
		}
		return nil
	})
}

// makeSlot makes the slot, and returns where it begins.
func (a *administration) makeSlot(ctx context.Context, failover bool) (begin int64, err error) {
	var rows [][][]byte
	err = a.waiting(ctx, makingText(a.slot.name, int(a.session.conn.PID())), a.statements.OldestTransaction(), func() (err error) {
		rows, err = a.session.query(ctx, a.statements.CreateOutboxSlot(a.slot.name, failover))
		return err
	})
	if err != nil {
		return 0, explain(fmt.Errorf("make the slot %s: %w", a.slot.name, err))
	}
	if begin, err = number(rows); err != nil {
		return 0, fmt.Errorf("make the slot %s: %w", a.slot.name, err)
	}
	return begin, nil
}

// audited calls do in a transaction that also writes the row of the action.
func (a *administration) audited(ctx context.Context, action, note string, do func(tx *sql.Tx) error) error {
	act := operate.NewAct(action, "").On("slot %s", a.slot.name).Noting(note)
	return audited(ctx, a.db, a.statements, act, do)
}

// readerPatience is how long AcceptLoss waits for the end of a process that reads from the slot. A server notes a little late that a forwarder has ended.
const readerPatience = 5 * time.Second

// readerEnds returns when no process reads from the slot any more, or after readerPatience.
func (a *administration) readerEnds(ctx context.Context) error {
	ticker := time.NewTicker(retryMin)
	defer ticker.Stop()
	for deadline := time.Now().Add(readerPatience); a.slot.active && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		if err := a.look(ctx, a.db); err != nil {
			return err
		}
	}
	return nil
}

// blocked returns [ErrSlotLost] if the server cannot read the messages in its log that no forwarder has confirmed. It does not try that while a process reads from the
// slot, which shows that it works.
func (a *administration) blocked(ctx context.Context) error {
	err := a.tried(ctx)
	if errors.Is(err, errTaken) {
		return nil
	}
	return err
}

// tried is blocked, and errTaken if a process has begun to read since this one has looked.
func (a *administration) tried(ctx context.Context) error {
	if !a.slot.exists || a.slot.active || a.slot.confirmed == 0 {
		return nil
	}
	_, err := a.unread(ctx, a.slot.name)
	return err
}

// copyTried is tried while a process may read from the slot. It needs another slot for that.
func (a *administration) copyTried(ctx context.Context) error {
	copied := fmt.Sprintf("%s_copy_%d", a.slot.name, a.session.conn.PID()) // another set-up may do the same
	if _, err := a.session.query(ctx, a.statements.CopySlot(a.slot.name, copied)); err != nil {
		return explain(fmt.Errorf("copy the slot %s, to look whether the log can be read: %w", a.slot.name, err))
	}
	_, err := a.unread(ctx, copied)
	return err
}

// unread returns how many messages a slot, which is that of the outbox or a copy, has that were not confirmed, and [ErrSlotLost] if they cannot be read.
func (a *administration) unread(ctx context.Context, slot string) (int64, error) {
	rows, err := a.session.query(ctx, a.statements.UnreadMessages(slot, a.slot.name, a.session.table))
	if lacksPublication(err, a.slot.name) {
		return 0, a.slot.unreadable()
	}
	if err != nil {
		return 0, explain(fmt.Errorf("look for messages in the log: %w", err))
	}
	unread, err := number(rows)
	if err != nil {
		return 0, fmt.Errorf("look for messages in the log: %w", err)
	}
	return unread, nil
}

// number returns the number that a statement has returned.
func number(rows [][][]byte) (int64, error) {
	if len(rows) != 1 || len(rows[0]) != 1 {
		return 0, errors.New("the answer is not one number")
	}
	return strconv.ParseInt(string(rows[0][0]), 10, 64)
}
