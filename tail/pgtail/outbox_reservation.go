package pgtail

import (
	"context"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// The reservation says which messages a session that is gone may have published without a row: those that were committed before it and are not
// stored yet. Only rows count starts, so the next session makes rows of them, and publishes all later ones without a row. Before a session publishes a message
// beyond the reservation, it commits a larger one. Each position that is stored moves the reservation on with it, so that this is rarely needed.

const (
	// reserveAhead is how many bytes of log beyond what is stored are reserved. After a crash, messages in so many bytes get rows.
	reserveAhead = 4 << 20
	// releasePatience bounds how long a session waits at its end for the reservation to be stored.
	releasePatience = time.Second
)

// begunBefore returns the place in the log before which messages may have been published by sessions that are gone. Those have read nothing beyond the end of the log.
func begunBefore(ctx context.Context, outbox tail.Outbox, claimed dialect.LogPosition) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	var end uint64
	if err := outbox.DB.QueryRowContext(ctx, outbox.Statements.LogEnd).Scan(&end); err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return min(end, uint64(claimed.Reserved)), nil //nolint:gosec // a position
}

// reservation returns the one to store with a position up to which nothing is under way. What earlier sessions may have published stays reserved.
func (k *keeper) reservation(position int64) int64 {
	return max(int64(k.since), position+reserveAhead) //nolint:gosec // a position
}

// reserve is called before messages of these portions are published. A session that was replaced cannot do that any more,
// so the next one knows of all messages that this one publishes.
func (k *keeper) reserve(ctx context.Context, portions []portion) error {
	last := int64(portions[len(portions)-1].final) //nolint:gosec // a position
	if last >= k.position.Reserved {
		if err := k.setReserved(ctx, k.reservation(last)); err != nil {
			return fmt.Errorf("reserve messages of the log: %w", err)
		}
	}
	k.begun = true
	return nil
}

// release is called at the end of a session. If nothing is under way, the next session can publish all that follows without rows. If it fails,
// more messages get rows.
func (k *keeper) release(ctx context.Context) {
	exact := max(int64(k.since), k.position.Position) //nolint:gosec // a position
	if k.begun || k.position.Reserved == exact {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	_ = k.setReserved(ctx, exact)
}

func (k *keeper) setReserved(ctx context.Context, reserved int64) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	next := k.position
	next.Reserved = reserved
	query := k.outbox.Statements.ReserveLog(next)
	result, err := k.outbox.DB.ExecContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if n == 0 {
		return errFenced
	}
	k.position = next
	return nil
}
