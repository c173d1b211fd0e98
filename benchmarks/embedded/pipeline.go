// Package embedded measures the whole way of a message on SQLite, in one process: business
// transaction, outbox, broker, handler.
package embedded

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// What both do at a time.
const (
	producers  = 8
	consumers  = 64
	microBatch = 100
)

// Pipeline sends messages all the way.
func Pipeline() measure.Scenario {
	return measure.Scenario{
		Name:  "sqlite",
		About: "on SQLite (WAL, synchronous FULL), from a business transaction for each message to its handler's effect, which comes once",
		Floor: "by-hand",
		Contenders: []measure.Contender{
			{Name: "ours", Run: inFile(ours)},
			{Name: "by-hand", Run: inFile(byHand)},
			{Name: "batched-by-hand", Run: inFile(batchedByHand)}, // what can be had without a queue while each order has its own commit
			{Name: "queued-by-hand", Run: inFile(queuedByHand)},   // and with one
		},
		Targets: []measure.Target{{Name: "sqlite", Ours: "ours", Other: "by-hand", AtLeast: 1.25}},
	}
}

// inFile gives a contender a database in a file.
func inFile(run func(ctx context.Context, stage *measure.Stage, db *sql.DB) error) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) (err error) {
		folder, err := os.MkdirTemp("", "postbox-bench-sqlite-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		const options = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
		db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "bench.db")+options)
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(1) // SQLite has one writer
		defer func() { err = errors.Join(err, db.Close()) }()
		for _, statement := range []string{createOrders, createAccount, insertAccount} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return run(ctx, stage, db)
	}
}

// all are the messages of a run.
func all(stage *measure.Stage) []*message.Message { return load.Messages(0, stage.Scale(5_000, 1_500)) }

// byHand commits each step of each message: the order with its message, its deletion after it was
// sent, and the claim with its effect.
func byHand(ctx context.Context, stage *measure.Stage, db *sql.DB) error {
	return pipelineByHand(ctx, stage, db, steps{
		relay:  relayByHand,
		handle: func(msg *message.Message) error { return handleByHand(ctx, db, msg) },
	})
}

// steps are what pipelines by hand do each in its own way.
type steps struct {
	relay  func(ctx context.Context, db *sql.DB, to *broker, n int) error
	handle func(msg *message.Message) error
	finish func() error // waits for what handle has only begun, if anything
}

// pipelineByHand commits each order with its message, and sends the messages through a relay to a
// handler.
func pipelineByHand(ctx context.Context, stage *measure.Stage, db *sql.DB, steps steps) error {
	for _, statement := range []string{createOutbox, createProcessed} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	list := all(stage)
	if err := stage.Start(ctx); err != nil {
		return err
	}
	through := newBroker()
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	wait := through.consume(consuming, consumers, steps.handle)
	relayed := make(chan error, 1)
	go func() { relayed <- steps.relay(ctx, db, through, len(list)) }()
	err := errors.Join(produceByHand(ctx, db, list), <-relayed)
	stop() // what was taken is handled
	err = errors.Join(err, wait())
	if steps.finish != nil {
		err = errors.Join(err, steps.finish())
	}
	return errors.Join(err, stage.Stop(len(list)))
}

func produceByHand(ctx context.Context, db *sql.DB, list []*message.Message) error {
	return load.Clients(ctx, len(list), producers, func(ctx context.Context, i int) error {
		metadata, err := json.Marshal(list[i].Metadata)
		if err != nil {
			return err
		}
		return inTx(ctx, db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertOrder, 1, 1); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, insertOutbox, load.Topic, list[i].UUID, metadata, []byte(list[i].Payload))
			return err
		})
	})
}

// relayByHand sends n messages, each of which it then deletes.
func relayByHand(ctx context.Context, db *sql.DB, to *broker, n int) error {
	after := int64(0)
	for n > 0 {
		ids, page, err := pageByHand(ctx, db, readOutbox, after)
		if err != nil {
			return err
		}
		for i, msg := range page {
			if err := to.Publish(load.Topic, msg); err != nil {
				return err
			}
			if _, err := db.ExecContext(ctx, deleteOutbox, ids[i]); err != nil {
				return err
			}
			after = ids[i]
		}
		n -= len(page)
	}
	return nil
}

// pageByHand reads what stands behind an id.
func pageByHand(ctx context.Context, db *sql.DB, query string, after int64) (ids []int64, page []*message.Message, err error) {
	rows, err := db.QueryContext(ctx, query, after)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var uuid string
		var metadata, payload []byte
		if err := rows.Scan(&id, &uuid, &metadata, &payload); err != nil {
			return nil, nil, err
		}
		msg := message.NewMessage(uuid, payload)
		if err := json.Unmarshal(metadata, &msg.Metadata); err != nil {
			return nil, nil, err
		}
		ids, page = append(ids, id), append(page, msg)
	}
	return ids, page, rows.Err()
}

func handleByHand(ctx context.Context, db *sql.DB, msg *message.Message) error {
	return inTx(ctx, db, func(tx *sql.Tx) error { return claimAndUpdate(ctx, tx, msg) })
}

func claimAndUpdate(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	fresh, err := claimByHand(ctx, tx, msg)
	if err != nil || !fresh {
		return err
	}
	_, err = tx.ExecContext(ctx, updateAccount)
	return err
}

func claimByHand(ctx context.Context, tx *sql.Tx, msg *message.Message) (fresh bool, err error) {
	result, err := tx.ExecContext(ctx, claim, "accounts", msg.UUID)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
