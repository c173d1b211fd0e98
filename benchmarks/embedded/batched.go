package embedded

import (
	"context"
	"database/sql"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// batchedPause lets messages come together between two looks of the relay.
const batchedPause = 5 * time.Millisecond

// batchedByHand commits each order with its message as byHand does, and then whatever is there
// together: the deletion of a page, and the claims and effects of the deliveries. Nothing is stored
// between broker and handler, so it shows what a pipeline can gain by sharing commits.
func batchedByHand(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
	together := load.NewGroup(microBatch, 1, func(batch []*message.Message) error { return handleTogether(ctx, db, batch) })
	defer together.Close()
	return pipelineByHand(ctx, stage, db, steps{relay: relayPages, handle: together.Do})
}

func relayPages(ctx context.Context, db *sql.DB, to *broker, n int) error {
	after := int64(0)
	for n > 0 {
		ids, page, err := pageByHand(ctx, db, readOutbox, after)
		if err != nil {
			return err
		}
		if len(page) > 0 {
			if err := to.Publish(load.Topic, page...); err != nil {
				return err
			}
			after = ids[len(ids)-1]
			if _, err := db.ExecContext(ctx, deletePage, after); err != nil {
				return err
			}
			n -= len(page)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(batchedPause):
		}
	}
	return nil
}

func handleTogether(ctx context.Context, db *sql.DB, batch []*message.Message) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		for _, msg := range batch {
			if err := claimAndUpdate(ctx, tx, msg); err != nil {
				return err
			}
		}
		return nil
	})
}
