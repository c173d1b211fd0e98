package embedded

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// queuedByHand does as batchedByHand, but stores what was delivered before it is handled, as ours
// does: then the broker is done with a message whatever its handler does. One worker takes a page
// of the queue at a time; it knows no keys, no retries and no other workers.
func queuedByHand(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, createQueue); err != nil {
		return err
	}
	stored := make(chan struct{}, 1)
	together := load.NewGroup(microBatch, 1, func(batch []*message.Message) error {
		if err := storeTogether(ctx, db, batch); err != nil {
			return err
		}
		select {
		case stored <- struct{}{}:
		default:
		}
		return nil
	})
	defer together.Close()
	var worker sync.WaitGroup
	var failed error
	n := len(all(stage))
	worker.Go(func() { failed = workOff(ctx, db, stored, n) })
	return pipelineByHand(ctx, stage, db, steps{relay: relayPages, handle: together.Do, finish: func() error {
		worker.Wait()
		return failed
	}})
}

func storeTogether(ctx context.Context, db *sql.DB, batch []*message.Message) error {
	return inTx(ctx, db, func(tx *sql.Tx) error {
		for _, msg := range batch {
			fresh, err := claimByHand(ctx, tx, msg)
			if err != nil {
				return err
			}
			if !fresh {
				continue
			}
			metadata, err := json.Marshal(msg.Metadata)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, insertQueue, msg.UUID, metadata, []byte(msg.Payload)); err != nil {
				return err
			}
		}
		return nil
	})
}

// workOff handles n messages, and removes them with their effects.
func workOff(ctx context.Context, db *sql.DB, stored <-chan struct{}, n int) error {
	after := int64(0)
	for n > 0 {
		ids, page, err := pageByHand(ctx, db, readQueue, after)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			select {
			case <-stored:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		after, n = ids[len(ids)-1], n-len(page)
		err = inTx(ctx, db, func(tx *sql.Tx) error {
			for range page {
				if _, err := tx.ExecContext(ctx, updateAccount); err != nil {
					return err
				}
			}
			_, err := tx.ExecContext(ctx, deleteQueue, after)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
