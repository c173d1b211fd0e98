package spool

import (
	"context"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
)

// MaxAppendBytes limits one insert, so that it fits into the packet of a MySQL server with default
// settings.
const MaxAppendBytes = 4 << 20

// Append inserts messages in their order. It uses one statement, or several if the database's
// packet limit or the work of its driver requires that. Run it in a transaction if either all
// messages or none must be stored.
func (s *Spool) Append(ctx context.Context, db Executor, run Runner, drafts []Draft) error {
	id, err := s.OpenIn(ctx, db)
	if err != nil {
		return err
	}
	return s.AppendTo(ctx, db, run, id, drafts)
}

// AppendTo is [Spool.Append] to the spool with the id that the transaction of db has just read.
func (s *Spool) AppendTo(ctx context.Context, db Executor, run Runner, id int64, drafts []Draft) error {
	rows := make([]dialect.Row, 0, min(len(drafts), s.Statements.MaxAppend))
	bytes := 0
	flush := func() error {
		if len(rows) == 0 {
			return nil
		}
		for _, query := range s.Statements.Append(id, rows) {
			if err := run(ctx, db, query); err != nil {
				return Wrap(fmt.Sprintf("append to spool %q", s.name), err)
			}
		}
		rows, bytes = rows[:0], 0
		return nil
	}
	for _, draft := range drafts {
		row, err := newRow(draft)
		if err != nil {
			return err
		}
		row.Lane = s.laneOf(row.KeyHash)
		size := len(row.Payload) + len(row.Metadata)
		if len(rows) == s.Statements.MaxAppend || bytes+size > MaxAppendBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		rows, bytes = append(rows, row), bytes+size
	}
	return flush()
}

// Runner executes a query. Callers pass one to use their own prepared statements.
type Runner func(ctx context.Context, db Executor, query dialect.Query) error

// Run executes a query without preparing it.
func Run(ctx context.Context, db Executor, query dialect.Query) error {
	_, err := db.ExecContext(ctx, query.Text, query.Args...)
	return err
}

// newRow returns the row of a message, which has no lane yet.
func newRow(draft Draft) (dialect.Row, error) {
	metadata, err := EncodeMetadata(draft.Metadata)
	if err != nil {
		return dialect.Row{}, fmt.Errorf("encode metadata of message %.60q: %w", draft.MessageID, err)
	}
	row := dialect.Row{
		State: dialect.StateReady, Delay: draft.Delay.Microseconds(),
		Topic: draft.Topic, MessageID: []byte(draft.MessageID), Payload: draft.Payload, Metadata: metadata,
	}
	if draft.Key != "" {
		hash := keyhash.Of(draft.Key)
		row.Key, row.KeyHash = []byte(draft.Key), &hash
	}
	if !draft.Due.IsZero() {
		row.Due = draft.Due.UnixMicro()
	}
	if row.Due > 0 || row.Delay > 0 {
		row.State = dialect.StateScheduled
	}
	return row, nil
}
