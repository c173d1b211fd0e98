package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Publishers write into the log only with a publication that is trusted, because the server cannot read what was written where there was none: see emitChecked in internal/dialect/log_emit.go.
// The set-up makes them trust a publication that it has made, and one that was renamed or made again, after it has looked whether all of the log can be read. From version 18 on the server
// needs none, and publishers do not look.

// trust returns which transaction wrote the publication of the slot, and whether it is trusted.
func (o *outboxState) trust(ctx context.Context) (written string, trusted bool, err error) {
	err = o.db.QueryRowContext(ctx, o.statements.PublicationTrust, o.slot.name).Scan(&written, &trusted)
	if errors.Is(err, sql.ErrNoRows) { // it was dropped a moment ago
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look at the publication %s: %w", o.slot.name, err)
	}
	return written, trusted, nil
}

// vouch makes publishers trust the publication again, if the server can read all that it has to read with it. The error is [ErrSlotLost] if it cannot: then publishers go on to be refused.
func (a *administration) vouch(ctx context.Context) error {
	written, trusted, err := a.trust(ctx)
	if err != nil || trusted {
		return err
	}
	if err := a.settle(ctx); err != nil { // also for transactions of the time without the publication
		return err
	}
	if err := a.copyTried(ctx); err != nil {
		return err
	}
	return a.rely(ctx, written)
}

// mark makes publishers trust the publication of a slot that is still to be made, if they do not yet.
func (a *administration) mark(ctx context.Context) error {
	written, trusted, err := a.trust(ctx)
	if err != nil || trusted {
		return err
	}
	return a.rely(ctx, written)
}

// rely makes publishers trust the publication while it is as a transaction has left it.
func (a *administration) rely(ctx context.Context, written string) error {
	if _, err := a.db.ExecContext(ctx, a.statements.MarkPublication(a.slot.name, written)); err != nil {
		return fmt.Errorf("comment on the publication %s, as its owner: %w", a.slot.name, err)
	}
	return nil
}

// unpublished returns an error if there is no publication, or if publishers do not trust it.
func (o *outboxState) unpublished() error {
	switch {
	case o.published && o.trusted:
		return nil
	case o.published && o.known:
		return &setupError{
			what: fmt.Sprintf("the publication %s was renamed, altered or made again, or its comment was changed, and publishers get errors until a set-up has looked whether the log can be read", o.slot.name), fix: runSetupOutbox,
		}
	case o.published:
		return nil // the set-up was cut off, which is said elsewhere
	case !o.known:
		return &setupError{what: "there is no publication " + o.slot.name, fix: runSetupOutbox}
	case o.server.version >= unpublishedVersion:
		return &setupError{what: fmt.Sprintf("the publication %s is gone, so a forwarder without work polls", o.slot.name), fix: runSetupOutbox}
	}
	return &setupError{what: fmt.Sprintf("the publication %s is gone: publishers get errors, since the server cannot read what is written to its log without it", o.slot.name), fix: runSetupOutbox + ", which says if messages are lost that were written before"}
}
