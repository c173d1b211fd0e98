package relay

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// slotByHand reads the inserts into an outbox from the log of PostgreSQL, as little as possible: it
// publishes each message as it comes, and deletes in the background what it has published. It reads
// no message that was there before it, knows no retry, no failure of its connection and no second
// process, and confirms no position, since its slot ends with the run.
type slotByHand struct {
	conn *pgconn.PgConn
	to   message.Publisher
	// published are the ids of the messages of a transaction.
	published chan []int64
}

// slotPage is the most transactions that wait to be deleted, before the reader waits.
const slotPage = 10_000

// openSlot makes the table, the publication and the slot, and begins to read. Stop ends it.
func openSlot(ctx context.Context, stage *measure.Stage, to message.Publisher) (stop func() error, err error) {
	if _, err := stage.Setup.ExecContext(ctx, floorTable+";"+slotPublication); err != nil {
		return nil, err
	}
	config, err := pgconn.ParseConfig(stage.DSN)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["replication"] = "database"
	s := &slotByHand{to: to, published: make(chan []int64, slotPage)}
	if s.conn, err = pgconn.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}
	if _, err := s.conn.Exec(ctx, createSlot).ReadAll(); err != nil {
		return nil, errors.Join(err, s.conn.Close(ctx))
	}
	s.conn.Frontend().Send(&pgproto3.Query{String: startReplication})
	if err := s.conn.Frontend().Flush(); err != nil {
		return nil, errors.Join(err, s.conn.Close(ctx))
	}
	read, removed := make(chan error, 1), make(chan error, 1)
	go func() { read <- s.read() }()
	go func() { removed <- s.remove(ctx, stage.DB) }()
	return func() error {
		err := s.conn.Conn().SetReadDeadline(time.Unix(1, 0)) // ends the reader
		return errors.Join(err, <-read, <-removed, s.conn.Close(ctx))
	}, nil
}

// read publishes the messages of the log until the deadline.
func (s *slotByHand) read() error {
	defer close(s.published)
	var ids []int64
	for {
		received, err := s.conn.ReceiveMessage(context.Background())
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return err
		}
		switch m := received.(type) {
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(m)
		case *pgproto3.CopyData:
			const header = 25
			if len(m.Data) <= header || m.Data[0] != 'w' {
				continue
			}
			switch change := m.Data[header:]; change[0] {
			case 'I':
				id, err := s.publish(change)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			case 'C':
				if len(ids) > 0 {
					s.published <- ids
				}
				ids = nil
			}
		}
	}
}

// publish publishes the message of an inserted row, whose columns are all there and binary, and
// returns its id.
func (s *slotByHand) publish(change []byte) (int64, error) {
	const before, count, kind, size = 6, 2, 1, 4 // the kind of the change, the table and the kind of the row; then columns
	var columns [5][]byte
	rest := change[before+count:]
	for i := range columns {
		n := int(binary.BigEndian.Uint32(rest[kind:]))
		columns[i], rest = rest[kind+size:][:n], rest[kind+size+n:]
	}
	msg := message.NewMessage(string(columns[2]), columns[4])
	if err := json.Unmarshal(columns[3], &msg.Metadata); err != nil {
		return 0, fmt.Errorf("read the metadata of a row: %w", err)
	}
	return int64(binary.BigEndian.Uint64(columns[0])), s.to.Publish(string(columns[1]), msg) //nolint:gosec // a bigint
}

// remove deletes what was published, together what has come meanwhile.
func (s *slotByHand) remove(ctx context.Context, db *sql.DB) error {
	remove, err := db.PrepareContext(ctx, floorDelete)
	if err != nil {
		return err
	}
	defer func() { _ = remove.Close() }()
	for ids := range s.published {
		for len(s.published) > 0 && len(ids) < peerPage {
			ids = append(ids, <-s.published...)
		}
		if _, err := remove.ExecContext(ctx, pq.Array(ids)); err != nil {
			return err
		}
	}
	return nil
}
