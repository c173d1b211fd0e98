package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// RemoveOutbox drops the slot and the publication. Publishers with Log fail from then on. Stop them before, and stop the forwarders when these have read everything: it returns an error
// while a process reads from the slot, or if messages in the log were not read, and [ErrSlotLost] until that loss was accepted with [AcceptLoss]. It waits for the end of all transactions of the server that have written anything, since they may have published. It drops no slot of
// another program. It can be run again, also after a crash. Rights are those of [SetupOutbox].
func RemoveOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if err := a.mayRemove(ctx); err != nil {
			return err
		}
		if a.slot.foreign {
			return a.foreign()
		}
		if a.slot.making() {
			return making(a.seen)
		}
		if a.known {
			if err := a.lost(); err != nil {
				return keepsLoss(err)
			}
		}
		if a.slot.exists && !a.slot.invalid {
			if !a.slot.active { // otherwise it fails
				if err := a.settle(ctx); err != nil { // an open transaction may have published
					return err
				}
			}
			unread, err := a.unread(ctx, a.slot.name)
			if err != nil && (a.known || !errors.Is(err, ErrSlotLost)) {
				return keepsLoss(err)
			}
			if unread > 0 {
				return errors.New("the log has messages that were not stored, or were stored within the last seconds: stop the publishers, let a forwarder read for a few seconds, and stop it, too")
			}
		}
		if err := a.unset(ctx); err != nil { // first, so that a call after a crash does not take this for a loss
			return err
		}
		if a.slot.exists {
			if err := a.drop(ctx, a.slot.name); err != nil {
				return err
			}
		}
		return a.forget(ctx)
	})
}

// keepsLoss is the error of a removal after which no program would say any more that messages were lost.
func keepsLoss(err error) error {
	if errors.Is(err, ErrSlotLost) {
		return fmt.Errorf("the removal would hide a loss, so accept it first, or call pgtail.DiscardOutbox to give the messages up: %w", err)
	}
	return err
}

// unset removes the position, without which no process reads.
func (a *administration) unset(ctx context.Context) error {
	if !a.known {
		return nil
	}
	if _, err := a.db.ExecContext(ctx, a.statements.RemoveLogPosition); err != nil {
		return fmt.Errorf("remove the position, as the owner of the tables: %w", err)
	}
	return nil
}

// DiscardOutbox is [RemoveOutbox] without its care: messages in the log that were not read are lost, and a loss that was not accepted is forgotten. If a process reads from the slot, its connection is ended, for which the role of
// DSN must be that of the process, or have pg_signal_backend. The forwarders then log that the log is not set up. It can be run again, also after a crash.
func DiscardOutbox(ctx context.Context, db postbox.Database, config OutboxConfig) error {
	return administer(ctx, db, config, func(a *administration) error {
		if err := a.mayRemove(ctx); err != nil {
			return err
		}
		if err := a.unset(ctx); err != nil { // first, so that no process comes back
			return err
		}
		if a.slot.exists {
			if err := a.wrest(ctx); err != nil {
				return err
			}
		}
		return a.forget(ctx)
	})
}

// wrest drops the slot, from which a process may read. It ends that process, and any that takes its place before it finds
// that there is no position.
func (a *administration) wrest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	ticker := time.NewTicker(retryMin)
	defer ticker.Stop()
	for {
		err := a.drop(ctx, a.slot.name)
		if !errors.Is(err, errTaken) {
			return err
		}
		if _, err := a.session.query(ctx, a.statements.EndReader(a.slot.name)); err != nil {
			return fmt.Errorf("end the connection that reads from the slot %s, for which the role of DSN needs the rights of its role, or pg_signal_backend (GRANT pg_signal_backend TO …): %w", a.slot.name, err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// forget removes the publication and the position.
func (a *administration) forget(ctx context.Context) error {
	if !a.known && !a.published {
		return nil // it was removed before
	}
	if err := a.dropFormer(ctx); err != nil {
		return err
	}
	remove := func(tx *sql.Tx) error {
		for _, text := range append(a.statements.DropPublicationSoon(a.slot.name), a.statements.RemoveLogPosition) {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return fmt.Errorf("remove the publication and the position, as the owner of the tables: %w", err)
			}
		}
		return nil
	}
	what := fmt.Sprintf("the publication %s is dropped when all transactions have ended that have published", a.slot.name)
	return a.waiting(ctx, what, a.statements.PublicationUser(a.slot.name), func() error {
		return a.untilUnlocked(ctx, func() error { return a.audited(ctx, operate.ActRemoveLog, "", remove) })
	})
}

// drop drops a slot. One that was being made is gone when the process that made it has been ended.
func (a *administration) drop(ctx context.Context, slot string) error {
	_, err := a.session.query(ctx, a.statements.DropOutboxSlot(slot))
	if from := (*pgconn.PgError)(nil); errors.As(err, &from) && from.Code == codeUndefinedObject {
		return nil
	}
	if err != nil {
		return explain(fmt.Errorf("drop the slot %s: %w", slot, err))
	}
	return nil
}

// dropInTime drops the slot of the outboxes. Forwarders that are started again read from it for moments, so it tries that for readerPatience.
func (a *administration) dropInTime(ctx context.Context) error {
	ticker := time.NewTicker(retryMin)
	defer ticker.Stop()
	for deadline := time.Now().Add(readerPatience); ; {
		err := a.drop(ctx, a.slot.name)
		if !errors.Is(err, errTaken) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// dropFormer drops the slot and the publication of the tables that these were restored from in the same database. The server
// would keep its log for that slot for ever. Those of another database, or of tables that are still there, stay.
func (a *administration) dropFormer(ctx context.Context) error {
	orphans, err := readOrphans(ctx, a.db, a.statements)
	if err != nil {
		return err
	}
	former := a.stored
	if !slices.ContainsFunc(orphans, func(o orphan) bool { return o.slot == former }) {
		return nil
	}
	if err := a.drop(ctx, former); err != nil {
		return err
	}
	if _, err := a.db.ExecContext(ctx, a.statements.DropPublication(former)); err != nil {
		return fmt.Errorf("drop the publication %s, as its owner: %w", former, err)
	}
	return nil
}
