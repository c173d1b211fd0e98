package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// maxSettle bounds the messages that one statement settles.
const maxSettle = 1000

// settle writes down how messages ended. Run again after an error it changes nothing twice: each statement is
// guarded by what the message was and by the fencing token, so an outcome that may or may not have been
// committed is simply written again.
func (d *Drainer) settle(ctx context.Context, entries []*entry) error {
	var done []dialect.Ref
	var rest []*entry
	for _, e := range entries {
		switch e.outcome.Verdict {
		case Done:
			done = append(done, e.message.Ref)
		case Retry, Dead:
			rest = append(rest, e)
		case Postpone: // nothing changes
		}
	}
	for start := 0; start < len(done); start += maxSettle {
		if err := d.remove(ctx, done[start:min(start+maxSettle, len(done))]); err != nil {
			return err
		}
	}
	for start := 0; start < len(rest); start += maxSettle {
		part := rest[start:min(start+maxSettle, len(rest))]
		if err := InTx(ctx, d.db, d.spool.statements, func(tx *sql.Tx) error { return d.settleFailures(ctx, tx, part) }); err != nil {
			return fmt.Errorf("settle failed messages of spool %q: %w", d.spool.name, err)
		}
	}
	return nil
}

func (d *Drainer) remove(ctx context.Context, refs []dialect.Ref) error {
	removed, err := d.execRemove(ctx, d.spool.statements.Remove(d.id, refs))
	if err != nil {
		return fmt.Errorf("settle messages of spool %q: %w", d.spool.name, err)
	}
	if int(removed) < len(refs) { // a lane was lost, or an answer was, and this is the second try
		d.lanes.rewind()
		d.renewAt = time.Time{}
	}
	return nil
}

func (d *Drainer) execRemove(ctx context.Context, query dialect.Query) (removed int64, err error) {
	if d.spool.statements.Isolation != sql.LevelDefault {
		err = InTx(ctx, d.db, d.spool.statements, func(tx *sql.Tx) error {
			removed, err = affected(tx.ExecContext(ctx, query.Text, query.Args...))
			return err
		})
		return removed, err
	}
	stmt, err := d.prepared.Get(ctx, query.Text) //nolint:sqlclosecheck // kept prepared until the drainer ends
	if err != nil {
		return 0, err
	}
	return affected(stmt.ExecContext(ctx, query.Args...))
}

// settleFailures writes failures, one by one: it is the rare path.
func (d *Drainer) settleFailures(ctx context.Context, tx *sql.Tx, entries []*entry) error {
	for _, e := range entries {
		if e.outcome.Verdict == Retry && !d.config.Retry.Exhausted(e.message.Attempts+1) {
			if err := d.retry(ctx, tx, e); err != nil {
				return err
			}
			continue
		}
		if err := d.bury(ctx, tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (d *Drainer) retry(ctx context.Context, tx *sql.Tx, e *entry) error {
	m, delay := e.message, e.outcome.After
	if delay <= 0 {
		delay = d.config.Retry.Delay(m.Attempts + 1)
	}
	changed, err := affected(tx.ExecContext(ctx, d.spool.statements.Retry,
		delay.Microseconds(), 1, d.id, m.Ref.State, m.Ref.Lane, m.Ref.ID, m.Attempts, m.Ref.Token))
	if err != nil || changed == 0 {
		return err
	}
	return d.recordFailure(ctx, tx, e)
}

func (d *Drainer) bury(ctx context.Context, tx *sql.Tx, e *entry) error {
	m := e.message
	buried, err := affected(tx.ExecContext(ctx, d.spool.statements.BuryMessage,
		MessageSubject(m.Ref.ID), ErrorText(e.outcome.Err), d.id, m.Ref.State, m.Ref.Lane, m.Ref.ID, m.Ref.Token))
	if err != nil || buried == 0 {
		return err
	}
	if err := d.recordFailure(ctx, tx, e); err != nil {
		return err
	}
	query := d.spool.statements.Remove(d.id, []dialect.Ref{m.Ref})
	removed, err := affected(tx.ExecContext(ctx, query.Text, query.Args...))
	if err == nil && removed == 0 {
		err = errors.New("the lane was lost between two statements")
	}
	if err == nil {
		d.logger.Error("Postbox moved a message to the dead letters", e.outcome.Err, watermill.LogFields{
			"spool": d.spool.name, "topic": m.Topic, "message_uuid": m.MessageID, "attempts": m.Attempts + 1,
		})
	}
	return err
}

func (d *Drainer) recordFailure(ctx context.Context, tx *sql.Tx, e *entry) error {
	_, err := tx.ExecContext(ctx, d.spool.statements.InsertFailure,
		MessageSubject(e.message.Ref.ID), e.message.Attempts+1, ErrorText(e.outcome.Err), d.config.Process)
	return err
}
