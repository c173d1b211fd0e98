package relay

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"

	"github.com/lib/pq"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Parts drains the same backlog by hand with more and more of what a forwarder does. The difference
// between a contender and the one before it is the price of one part, and all of them together are
// the distance between a tuned forwarder and the floor.
func Parts() measure.Scenario {
	const backlog = 50_000
	by := func(p parts) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error { return p.drain(ctx, stage, backlog) }
	}
	return measure.Scenario{
		Name:  "relay-parts",
		About: "what the parts of a forwarder cost: drain 50,000 messages by hand, each contender with one part more than the one before it",
		Floor: "by-hand",
		Turns: 2,
		Contenders: []measure.Contender{
			{Name: "by-hand", Run: func(ctx context.Context, stage *measure.Stage) error {
				return floor(backlog, newSink(backlog, 0), peerPage)(ctx, stage)
			}},
			{Name: "our-table", Run: by(parts{})},
			{Name: "our-read", Run: by(parts{read: true})},
			{Name: "our-removal", Run: by(parts{read: true, remove: true})},
			{Name: "ours-tuned", Run: func(ctx context.Context, stage *measure.Stage) error {
				return ours(backlog, newSink(backlog, 0), tuned)(ctx, stage)
			}},
		},
	}
}

// parts says what is done with the statements of Postbox in a loop that otherwise is that of
// [floor], on Postbox's table, all in one lane: reading finds what may run now, and removing checks
// the fencing token of the lane and the time of each message.
type parts struct{ read, remove bool }

// The only spool of the schema, and the fencing token of its lane.
const ourSpool, heldToken = 1, 1

func (p parts) drain(ctx context.Context, stage *measure.Stage, n int) error {
	if err := fillShaped(ctx, stage.Setup, load.Usual(), n); err != nil {
		return err
	}
	for _, statement := range []string{oneLane, repackOurs, analyzeOurs} {
		if _, err := stage.Setup.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if _, err := stage.Setup.ExecContext(ctx, holdLane, heldToken); err != nil {
		return err
	}
	statements, err := dialect.For(dialect.PostgreSQL, "", "", "")
	if err != nil {
		return err
	}
	if err := stage.Start(ctx); err != nil {
		return err
	}
	loop := partsLoop{parts: p, statements: statements, to: newSink(n, 0)}
	if err := loop.prepare(ctx, stage.DB); err != nil {
		return err
	}
	defer loop.close()
	for last := int64(0); err == nil; {
		var refs []dialect.Ref
		if refs, err = loop.page(ctx, last); len(refs) == 0 {
			break
		}
		last, err = refs[len(refs)-1].ID, errors.Join(err, loop.settle(ctx, refs))
	}
	return errors.Join(err, stage.Stop(n))
}

// partsLoop is a loop with its prepared statements.
type partsLoop struct {
	parts
	statements   *dialect.Statements
	to           message.Publisher
	fetch, erase *sql.Stmt
}

func (l *partsLoop) prepare(ctx context.Context, db *sql.DB) (err error) {
	read, remove := ourTableRead, ourTableDelete
	if l.read {
		read = l.query(0).Text
	}
	if l.remove {
		remove = l.statements.Remove(ourSpool, make([]dialect.Ref, peerPage)).Text
	}
	if l.fetch, err = db.PrepareContext(ctx, read); err != nil {
		return err
	}
	l.erase, err = db.PrepareContext(ctx, remove)
	return err
}

func (l *partsLoop) close() { _, _ = l.fetch.Close(), l.erase.Close() }

// query is the read of a forwarder that holds the lane.
func (l *partsLoop) query(after int64) dialect.Query {
	return l.statements.Fetch(dialect.FetchParams{
		Spool: ourSpool, Cursors: []dialect.Cursor{{After: after}},
		Inline: math.MaxInt32, PerLane: peerPage, Due: peerPage,
	})
}

// page reads a page and publishes its messages.
func (l *partsLoop) page(ctx context.Context, after int64) (refs []dialect.Ref, err error) {
	args := []any{after, peerPage}
	if l.read {
		args = l.query(after).Args
	}
	rows, err := l.fetch.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var row partsRow
		if err := rows.Scan(row.columns(l.read)...); err != nil {
			return nil, err
		}
		if row.ref.State == dialect.StateMeta {
			continue
		}
		msg := message.NewMessage(row.uuid, row.payload)
		if err := json.Unmarshal(row.metadata, &msg.Metadata); err != nil {
			return nil, err
		}
		if err := l.to.Publish(row.topic, msg); err != nil {
			return nil, err
		}
		row.ref.Token = heldToken
		refs = append(refs, row.ref)
	}
	return refs, rows.Err()
}

// partsRow is a row of a page.
type partsRow struct {
	ref                    dialect.Ref
	topic, uuid            string
	metadata, payload      []byte
	hash, attempts, starts sql.NullInt64 // these and the rest a loop by hand does not use
	size                   sql.NullInt64
	key                    sql.RawBytes
}

func (r *partsRow) columns(all bool) []any {
	if !all {
		return []any{&r.ref.ID, &r.topic, &r.uuid, &r.metadata, &r.payload}
	}
	return []any{
		&r.ref.State, &r.ref.ID, &r.ref.Lane, &r.hash, &r.attempts, &r.starts, &r.topic, &r.uuid, &r.key, &r.ref.CreatedAt,
		&r.size, &r.metadata, &r.payload,
	}
}

// settle deletes messages.
func (l *partsLoop) settle(ctx context.Context, refs []dialect.Ref) error {
	var args []any
	if l.remove {
		args = l.statements.Remove(ourSpool, refs).Args
	} else {
		ids := make(pq.Int64Array, len(refs))
		for i, ref := range refs {
			ids[i] = ref.ID
		}
		args = []any{ids}
	}
	_, err := l.erase.ExecContext(ctx, args...)
	return err
}
