package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// This file is what an application needs for the change. All events go through the outbox from the
// start of the change on, and each row of the old table gets there once: it is marked in the
// transaction that publishes it. Rows are locked in the order of their ids and never skipped, so a
// row that another transaction is just moving is waited for.

// publishAfterMoving is the new way to publish, for as long as other producers may write to the old
// table. Earlier events of the same key may still be there. They go first, in the same transaction,
// and so the order of the key is kept without a pause of any producer.
func (t oldTable) publishAfterMoving(ctx context.Context, tx *sql.Tx, outbox message.Publisher, e event) error {
	rows, err := t.pendingOf(ctx, tx, e.customer)
	if err != nil {
		return err
	}
	if err := t.move(ctx, tx, outbox, rows); err != nil {
		return err
	}
	return publish(ctx, outbox, e)
}

// publish is the new way to publish when the change is over.
func publish(ctx context.Context, outbox message.Publisher, e event) error {
	msg := message.NewMessageWithContext(ctx, e.id, []byte(e.body)) // the transaction is in ctx
	msg.Metadata.Set(postbox.MetadataOrderingKey, e.customer)
	return outbox.Publish(e.topic, msg)
}

// move publishes rows through the outbox and marks them as published, in one transaction. An event
// keeps its id, so that an inbox recognises one that the relay had published and not marked.
func (t oldTable) move(ctx context.Context, tx *sql.Tx, outbox message.Publisher, rows []oldRow) error {
	for _, row := range rows {
		if err := publish(ctx, outbox, row.event); err != nil {
			return fmt.Errorf("move row %d: %w", row.number, err)
		}
		if err := t.mark(ctx, tx, row.number); err != nil {
			return err
		}
	}
	return nil
}

// mover takes the place of the relay: it moves the rows that producers of the old kind go on
// writing. One process runs it; if two do, one waits for the other.
type mover struct {
	db     *sql.DB
	table  oldTable
	outbox message.Publisher
}

const (
	// movePage is the number of rows that one transaction moves. Producers of the same keys wait
	// for it.
	movePage = 100
	// movePause is the time between two looks at a table without pending rows.
	movePause = 10 * time.Millisecond
	// moveErrors in a row end the mover. A deadlock with a producer is one of them, and comes to an
	// end by itself.
	moveErrors = 50
)

// run moves rows until ctx ends.
func (m mover) run(ctx context.Context) error {
	for failed := 0; ; {
		moved, err := m.movePage(ctx)
		switch {
		case err == nil:
			failed = 0
		case failed == moveErrors:
			return fmt.Errorf("move a page of the old table: %w", err)
		default:
			failed++
		}
		if moved == movePage && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(movePause):
		}
	}
}

func (m mover) movePage(ctx context.Context) (moved int, err error) {
	err = postbox.InTxWith(ctx, m.db, m.table.isolation, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := m.table.pending(ctx, tx, movePage)
		if err != nil {
			return err
		}
		moved = len(rows)
		return m.table.move(ctx, tx, m.outbox, rows)
	})
	return moved, err
}
