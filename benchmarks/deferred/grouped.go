package deferred

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/lib/pq"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// grouped commits deliveries together by hand: those that wait while a commit is under way share the next one. It looks for
// no duplicates, keeps no order and knows no delays, so it shows what so many deliveries can gain by sharing commits.
type grouped struct {
	insert  *sql.Stmt
	waiting chan waiting
}

type waiting struct {
	id                string
	metadata, payload []byte
	stored            chan error
}

func ingestGrouped(ctx context.Context, stage *measure.Stage) error {
	if _, err := stage.Setup.ExecContext(ctx, createQueue); err != nil {
		return err
	}
	insert, err := stage.DB.PrepareContext(ctx, insertQueueRows)
	if err != nil {
		return err
	}
	g := &grouped{insert: insert, waiting: make(chan waiting, inFlight)}
	var committer sync.WaitGroup
	committer.Go(func() { g.commit(ctx) })
	err = load.Deliver(ctx, stage, inFlight, stage.Scale(30_000, 6_000), g.store)
	close(g.waiting)
	committer.Wait()
	return errors.Join(err, insert.Close())
}

func (g *grouped) store(_ context.Context, msg *message.Message) error {
	metadata, err := json.Marshal(msg.Metadata)
	if err != nil {
		return err
	}
	w := waiting{id: msg.UUID, metadata: metadata, payload: msg.Payload, stored: make(chan error, 1)}
	g.waiting <- w
	return <-w.stored
}

// commit goes on until nothing more can come.
func (g *grouped) commit(ctx context.Context) {
	for first := range g.waiting {
		batch := []waiting{first}
		for len(g.waiting) > 0 {
			batch = append(batch, <-g.waiting)
		}
		var ids pq.StringArray
		var metadata, payloads pq.ByteaArray
		for _, w := range batch {
			ids, metadata, payloads = append(ids, w.id), append(metadata, w.metadata), append(payloads, w.payload)
		}
		_, err := g.insert.ExecContext(ctx, ids, metadata, payloads)
		for _, w := range batch {
			w.stored <- err
		}
	}
}
