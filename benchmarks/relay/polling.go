package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// byHand is an outbox as one writes it by hand, in the words of a database.
type byHand struct {
	create, insert, read string
	// remove deletes by a list of ids.
	remove func(ctx context.Context, db *sql.DB, ids []int64) error
}

var (
	byHandPostgres = byHand{
		create: floorTable, insert: floorInsertOne, read: floorRead,
		remove: func(ctx context.Context, db *sql.DB, ids []int64) error {
			_, err := db.ExecContext(ctx, floorDelete, pq.Array(ids))
			return err
		},
	}
	byHandMariaDB = byHand{
		create: mariaDBTable, insert: mariaDBInsertOne, read: mariaDBRead,
		remove: func(ctx context.Context, db *sql.DB, ids []int64) error {
			list := make([]string, len(ids))
			for i, id := range ids {
				list[i] = strconv.FormatInt(id, 10)
			}
			_, err := db.ExecContext(ctx, mariaDBDelete+strings.Join(list, ",")+")")
			return err
		},
	}
)

// pacedByHand commits messages at a pace and takes the time until each is published by hand: a
// commit wakes a loop that reads the first page, publishes it, and deletes it. It reads from the
// beginning of the table each time, since it would miss a message that commits late behind a place
// that it has passed. It knows no order of a key, no retry and no second process.
func pacedByHand(ctx context.Context, stage *measure.Stage, db *sql.DB, words byHand, at paced) error {
	if _, err := db.ExecContext(ctx, words.create); err != nil {
		return err
	}
	insert, err := db.PrepareContext(ctx, words.insert)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	watch := at.stopwatch()
	wake := make(chan struct{}, 1)
	relaying, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- words.relay(relaying, db, watch, wake) }()
	err = watch.runWarm(ctx, stage, at.pace, at.before, func(ctx context.Context, msg *message.Message, committed func()) error {
		if err := insertByHand(ctx, db, insert, msg); err != nil {
			return err
		}
		committed()
		select {
		case wake <- struct{}{}:
		default: // it has been woken, and has not looked yet
		}
		return nil
	})
	stop()
	return errors.Join(err, <-ended)
}

func insertByHand(ctx context.Context, db *sql.DB, insert *sql.Stmt, msg *message.Message) error {
	metadata, err := json.Marshal(msg.Metadata)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.StmtContext(ctx, insert).ExecContext(ctx, load.Topic, msg.UUID, metadata, []byte(msg.Payload)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// relay publishes and deletes what is there, whenever it is woken, until ctx ends.
func (b byHand) relay(ctx context.Context, db *sql.DB, to message.Publisher, wake <-chan struct{}) error {
	read, err := db.PrepareContext(ctx, b.read)
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	for {
		ids, err := publishPage(ctx, read, to, 0, peerPage)
		if err == nil && len(ids) > 0 {
			err = b.remove(ctx, db, ids)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case len(ids) > 0:
			continue
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}
