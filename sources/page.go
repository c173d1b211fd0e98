package sources

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// maxPageBytes bounds the memory for the payloads of a page, except for its last row.
const maxPageBytes = 16 << 20

// errRestored is the reason why no position can be trusted any more.
var errRestored = errors.New("the position of the consumer group is ahead of the database, as after a restore from a dump")

// errContended is the reason why a page is given up: some of its rows disappeared between the read
// and the delete.
var errContended = errors.New("another process is deleting rows of the table")

// page is one transaction of a transfer.
type page struct {
	transfer *transfer
	tx       *sql.Tx
	group    groupState
	position position // before, and after run, after

	busy     bool // another process takes over this source, so nothing was done
	held     bool // that process is the old daemon
	restored bool // our own position was dropped
	cut      bool // the read ended before the rows did
	bytes    int
	rows     []sourceRow
	drafts   []spool.Draft
	dead     []deadRow
}

// deadRow is a row that is not a message.
type deadRow struct {
	row sourceRow
	err error
}

// run takes a page over, if the transfer has the turn. The locks, both taken without waiting, are
// held for these few statements, none of which waits for a producer or a broker.
func (p *page) run(ctx context.Context) error {
	stored, seen, err := p.lock(ctx)
	if err != nil || p.busy {
		return err
	}
	if err := p.fence(ctx); err != nil || p.busy {
		return err
	}
	if err := p.read(ctx); err != nil {
		return err
	}
	if len(p.rows) > 0 {
		if err := p.append(ctx); err != nil {
			return err
		}
		if err := p.remove(ctx); err != nil {
			return err
		}
	}
	var last *rowID
	if len(p.rows) > 0 {
		last = &p.rows[len(p.rows)-1].id
	}
	p.position = p.position.advance(seen, last, p.cut)
	return p.save(ctx, stored)
}

// lock takes the turn. It returns the stored position and the snapshot in which it was read.
func (p *page) lock(ctx context.Context) (stored rowID, seen *snapshot, err error) {
	var text string
	err = p.tx.QueryRowContext(ctx, p.transfer.tables.lock, p.transfer.source.Table).Scan(&stored.Transaction, &stored.Offset, &text)
	if errors.Is(err, sql.ErrNoRows) {
		p.busy = true
		return stored, nil, nil
	}
	if err != nil {
		return stored, nil, fmt.Errorf("lock the source: %w", err)
	}
	if seen, err = parseSnapshot(text); err != nil {
		return stored, nil, err
	}
	p.position = p.position.raise(stored)
	if seen != nil && p.position.After.Transaction > seen.next {
		p.position, p.restored = position{}, true
	}
	return stored, seen, nil
}

// fence keeps the old daemon out until the transaction ends, and skips the rows that it has
// forwarded.
func (p *page) fence(ctx context.Context) error {
	source, tables := p.transfer.source, p.transfer.tables
	if p.group == noTable {
		return nil
	}
	if p.group == noGroup {
		if _, err := p.tx.ExecContext(ctx, tables.addGroup, source.ConsumerGroup); err != nil {
			return fmt.Errorf("register consumer group %q: %w", source.ConsumerGroup, err)
		}
	}
	var acked rowID
	var next int64
	err := p.tx.QueryRowContext(ctx, tables.fence, source.ConsumerGroup).Scan(&acked.Offset, &acked.Transaction, &next)
	if errors.Is(err, sql.ErrNoRows) {
		p.busy, p.held = true, true
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock consumer group %q: %w", source.ConsumerGroup, err)
	}
	if acked.Transaction > next {
		return fmt.Errorf("%w: group %q of %s is at transaction %d and the next one to start is %d: delete the rows "+
			"that were forwarded and set last_processed_transaction_id to '0'",
			errRestored, source.ConsumerGroup, source.OffsetsTable, acked.Transaction, next)
	}
	p.position = p.position.raise(acked)
	return nil
}

// read reads rows until the page has enough of them, or of their bytes.
func (p *page) read(ctx context.Context) error {
	query := p.transfer.tables.Page(p.position, p.transfer.limit)
	rows, err := p.tx.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return fmt.Errorf("read a page: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for p.bytes < p.transfer.maxBytes && rows.Next() {
		var row sourceRow
		if err := rows.Scan(&row.id.Transaction, &row.id.Offset, &row.uuid, &row.payload, &row.metadata); err != nil {
			return fmt.Errorf("read a page: %w", err)
		}
		p.bytes += row.size()
		p.rows = append(p.rows, row)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read a page: %w", err)
	}
	p.cut = len(p.rows) == p.transfer.limit || p.bytes >= p.transfer.maxBytes
	return nil
}

// append writes messages to the spool, and rows that are no messages to the dead letters.
func (p *page) append(ctx context.Context) error {
	t := p.transfer
	for _, row := range p.rows {
		draft, err := t.decoder.draft(row)
		if err != nil {
			p.dead = append(p.dead, deadRow{row: row, err: err})
			continue
		}
		p.drafts = append(p.drafts, draft)
	}
	if err := t.target.Append(ctx, p.tx, spool.Run, p.drafts); err != nil {
		return err
	}
	if err := p.bury(ctx); err != nil {
		return fmt.Errorf("move %d rows to the dead letters: %w", len(p.dead), err)
	}
	return nil
}

// bury stores the rows that are no messages.
func (p *page) bury(ctx context.Context) error {
	if len(p.dead) == 0 {
		return nil
	}
	target, err := p.transfer.target.OpenIn(ctx, p.tx)
	if err != nil {
		return err
	}
	for _, dead := range p.dead {
		letter, err := p.letter(dead, target)
		if err != nil {
			return fmt.Errorf("row %d: %w", dead.row.id.Offset, err)
		}
		stored, err := spool.Affected(spool.Directly(ctx, p.tx, p.transfer.statements.InsertDeadLetter(dialect.InboxLetter{Letter: letter})))
		if err != nil {
			return err
		}
		if stored == 0 {
			return spool.ErrNoLetter
		}
	}
	return nil
}

func (p *page) letter(dead deadRow, target int64) (dialect.Letter, error) {
	t := p.transfer
	metadata, err := spool.EncodeMetadata(t.decoder.remains(dead.row))
	return dialect.Letter{
		Subject: t.decoder.subject(dead.row), Spool: target, Topic: t.source.Topic, MessageID: spool.Fitting(dead.row.uuid),
		Payload: dead.row.payload, Metadata: metadata, Error: spool.ErrorText(fmt.Errorf("take over from %s: %w", t.source.Table, dead.err)),
		Cause: dialect.CauseUnreadable,
	}, err
}

// remove deletes the rows that were read, all or none: the process that deletes a row owns its
// message.
func (p *page) remove(ctx context.Context) error {
	ids := make([]rowID, len(p.rows))
	for i, row := range p.rows {
		ids[i] = row.id
	}
	query := p.transfer.tables.Remove(ids)
	result, err := p.tx.ExecContext(ctx, query.Text, query.Args...)
	if err != nil {
		return fmt.Errorf("delete a page: %w", err)
	}
	removed, err := result.RowsAffected()
	if err != nil {
		return fmt.Errorf("delete a page: %w", err)
	}
	if int(removed) != len(ids) {
		return fmt.Errorf("delete a page: %d of %d rows are left: %w", removed, len(ids), errContended)
	}
	return nil
}

// save stores the position from which the next process may start.
func (p *page) save(ctx context.Context, stored rowID) error {
	lowest := p.position.lowest()
	if lowest == stored {
		return nil
	}
	if err := spool.Run(ctx, p.tx, p.transfer.tables.Save(p.transfer.source.Table, lowest)); err != nil {
		return fmt.Errorf("save the position: %w", err)
	}
	return nil
}

// nextLimit is smaller after a page of large rows, since the rows that the page did not take were
// read for nothing.
func (p *page) nextLimit() int {
	if p.bytes >= p.transfer.maxBytes {
		return max(len(p.rows), 1)
	}
	return min(2*p.transfer.limit, p.transfer.source.PageSize)
}
