package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// floor drains an outbox of n messages as little as possible: it reads a page, publishes, and
// deletes what it has published by a list of ids, with prepared statements. It knows no retry, no
// order of a key, no second process, and misses what commits late.
func floor(n int, to *sink, page int) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		if err := fillFloor(ctx, stage.Setup, n); err != nil {
			return err
		}
		if err := stage.Start(ctx); err != nil {
			return err
		}
		remove, err := stage.DB.PrepareContext(ctx, floorDelete)
		if err != nil {
			return err
		}
		defer func() { _ = remove.Close() }()
		err = drainByHand(ctx, stage.DB, floorRead, to, page, func(ids []int64) error {
			_, err := remove.ExecContext(ctx, pq.Array(ids))
			return err
		})
		return errors.Join(err, stage.Stop(n))
	}
}

func fillFloor(ctx context.Context, db *sql.DB, n int) error {
	if _, err := db.ExecContext(ctx, floorTable); err != nil {
		return err
	}
	return load.Fill(n, func(batch ...*message.Message) error {
		ids, metadata, payloads := make([]string, len(batch)), make([][]byte, len(batch)), make([][]byte, len(batch))
		for i, msg := range batch {
			ids[i], payloads[i] = msg.UUID, msg.Payload
			var err error
			if metadata[i], err = json.Marshal(msg.Metadata); err != nil {
				return err
			}
		}
		_, err := db.ExecContext(ctx, floorInsert, load.Topic, pq.Array(ids), pq.Array(metadata), pq.Array(payloads))
		return err
	})
}

// drainByHand works until the table is empty.
func drainByHand(ctx context.Context, db *sql.DB, query string, to *sink, page int, remove func(ids []int64) error) error {
	read, err := db.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	after := int64(0)
	for {
		ids, err := publishPage(ctx, read, to, after, page)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := remove(ids); err != nil {
			return err
		}
		after = ids[len(ids)-1]
	}
}

// publishPage reads the messages of a page, publishes each, and returns their ids.
func publishPage(ctx context.Context, read *sql.Stmt, to message.Publisher, after int64, page int) (ids []int64, err error) {
	rows, err := read.QueryContext(ctx, after, page)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id int64
		var topic, uuid string
		var metadata, payload []byte
		if err := rows.Scan(&id, &topic, &uuid, &metadata, &payload); err != nil {
			return nil, err
		}
		msg := message.NewMessage(uuid, payload)
		if err := json.Unmarshal(metadata, &msg.Metadata); err != nil {
			return nil, err
		}
		if err := to.Publish(topic, msg); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
