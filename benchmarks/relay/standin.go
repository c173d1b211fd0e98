package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// standIn drains an outbox of n messages as oagudo/outbox does, which cannot be had here as a
// module: the same statements in the same rhythm, in our words. Once a tick it reads a batch, in
// order of creation, publishes one message after the other, each under a deadline, and deletes them
// with one statement that has a parameter for each, none of them prepared.
func standIn(n int, to *sink, batch int) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) error {
		if err := fillStandIn(ctx, stage.Setup, n); err != nil {
			return err
		}
		if err := stage.Start(ctx); err != nil {
			return err
		}
		// The shortest pause it can be told: with less than a batch takes there is none.
		const interval = time.Millisecond
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for to.got.Load() < to.want {
			if err := standInBatch(ctx, stage.DB, to, batch); err != nil {
				return err
			}
			<-tick.C
		}
		return stage.Stop(n)
	}
}

func fillStandIn(ctx context.Context, db *sql.DB, n int) error {
	if _, err := db.ExecContext(ctx, standInTable+";"+standInIndexes); err != nil {
		return err
	}
	return load.Fill(n, func(batch ...*message.Message) error {
		ids, metadata, payloads := make([]string, len(batch)), make([][]byte, len(batch)), make([][]byte, len(batch))
		for i, msg := range batch {
			id, err := uuid.NewV7() // the library makes random ones, which cost it more
			if err != nil {
				return err
			}
			ids[i], payloads[i] = id.String(), msg.Payload
			if metadata[i], err = json.Marshal(msg.Metadata); err != nil {
				return err
			}
		}
		_, err := db.ExecContext(ctx, standInInsert, pq.Array(ids), pq.Array(metadata), pq.Array(payloads))
		return err
	})
}

// standInRow is a message as that library reads it.
type standInRow struct {
	id                   uuid.UUID
	payload, metadata    []byte
	created, scheduledAt time.Time
	attempts             int32
}

func standInBatch(ctx context.Context, db *sql.DB, to *sink, batch int) error {
	rows, err := standInPage(ctx, db, batch)
	if err != nil || len(rows) == 0 {
		return err
	}
	parameters, ids := make([]string, 0, len(rows)), make([]any, 0, len(rows))
	for i, row := range rows {
		if err := standInPublish(ctx, to, row); err != nil {
			return err
		}
		parameters = append(parameters, "$"+strconv.Itoa(i+1))
		ids = append(ids, row.id)
	}
	_, err = db.ExecContext(ctx, standInDelete+strings.Join(parameters, ", ")+")", ids...)
	return err
}

func standInPage(ctx context.Context, db *sql.DB, batch int) (page []*standInRow, err error) {
	rows, err := db.QueryContext(ctx, standInRead, batch)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		row := &standInRow{}
		if err := rows.Scan(&row.id, &row.payload, &row.created, &row.scheduledAt, &row.metadata, &row.attempts); err != nil {
			return nil, err
		}
		page = append(page, row)
	}
	return page, rows.Err()
}

// standInPublish is what a user of that library writes to reach a publisher of Watermill, under its
// deadline.
func standInPublish(ctx context.Context, to *sink, row *standInRow) error {
	const deadline = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	msg := message.NewMessage(row.id.String(), row.payload)
	msg.SetContext(ctx)
	if err := json.Unmarshal(row.metadata, &msg.Metadata); err != nil {
		return err
	}
	return to.Publish(load.Topic, msg)
}
