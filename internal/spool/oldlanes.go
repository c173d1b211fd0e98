package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// A new number of lanes is a new layout: see [dialect.Layout]. Processes that write messages may use the old one for a while,
// and their transactions may commit at any time. What keeps the order is this:
//
//   - A drainer discards a read whose snapshot has another version of the spool than the one it has applied, or contains a
//     message in an old lane. A transaction that began after a message in an old lane was committed is seen only together
//     with that message.
//   - A message leaves its old lane only when the lane is retired: no process holds it, so none has a message of it in memory,
//     and none can hold it again. A settlement that comes later finds neither the token nor the message.
//   - The transaction that moves messages changes the version, so each drainer reads its lanes from the beginning before it
//     hands out more. The messages keep their ids, and so their place among those of their key.
//
// All of this is in the rows. A process that crashes leaves nothing to be mended, and any other goes on.
//
// A database that has gone back to a state before a change gives out the numbers of the lost lanes again. A message in one of these would not be seen to be in an
// old lane. So no process uses a layout for longer than [LayoutAge] without reading it again, and a change waits for that long. That does not cover a
// transaction that begins to write within that time and commits after the change.
//
// Each page is moved under the lock of the spool's row, and only if the layout of the process is the stored one. A process that does not
// know of a change yet would take the new lanes for old ones.

// movePage is the maximum number of messages of each state that one transaction moves.
const movePage = 500

// ErrOldLayout means that the spool has another layout than the caller knows.
var ErrOldLayout = errors.New("another operator has changed the number of lanes meanwhile")

// errNothingMoved rolls back a transaction that has not changed anything else than the version.
var errNothingMoved = errors.New("nothing was moved")

// MoveFromOldLanes retires old lanes that no process holds, and moves a page of their messages to the lanes of the layout. It
// returns how many it moved. Zero means that no messages are there, or that processes hold their lanes, or other
// transactions the messages. The error is [ErrOldLayout] if the layout is not the stored one.
func (s *Spool) MoveFromOldLanes(ctx context.Context, db *sql.DB, layout dialect.Layout) (moved int, err error) {
	id := s.ID()
	err = InTx(ctx, db, s.Statements, func(tx *sql.Tx) error {
		moved = 0
		if err := s.beginMove(ctx, tx, id, layout); err != nil {
			return err
		}
		retired, err := s.retire(ctx, tx, id, layout)
		if err != nil {
			return err
		}
		for _, state := range []int{dialect.StateReady, dialect.StateScheduled, dialect.StateRetrying} {
			n, err := s.movePage(ctx, tx, id, layout, state)
			if err != nil {
				return err
			}
			moved += n
		}
		if moved+retired == 0 {
			return errNothingMoved
		}
		return nil
	})
	if errors.Is(err, errNothingMoved) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("move messages to the new lanes: %w", err)
	}
	return moved, nil
}

// beginMove changes the version of the spool, and returns [ErrOldLayout] if it has another layout.
func (s *Spool) beginMove(ctx context.Context, tx *sql.Tx, id int64, layout dialect.Layout) error {
	n, err := Affected(Directly(ctx, tx, s.Statements.BeginMove(id, layout)))
	if err == nil && n == 0 {
		err = ErrOldLayout
	}
	return err
}

// retire keeps processes from holding old lanes that no process holds now. It returns how many lanes these are.
func (s *Spool) retire(ctx context.Context, tx *sql.Tx, id int64, layout dialect.Layout) (retired int, err error) {
	if err := s.addRow(ctx, tx, id, layout); err != nil {
		return 0, err
	}
	free, err := SelectIDs(ctx, tx, s.Statements.OldLanes(id, layout))
	if err != nil || len(free) == 0 {
		return 0, err
	}
	return len(free), Run(ctx, tx, s.Statements.RetireLanes(id, slices.Sorted(maps.Keys(free))))
}

// addRow adds a row for an old lane that has messages, unless it has one. A lane has none if its row was lost together with the layout that
// had it, or if a process of a version before migration 24 has computed its number.
func (s *Spool) addRow(ctx context.Context, tx *sql.Tx, id int64, layout dialect.Layout) error {
	rowless, err := SelectIDs(ctx, tx, s.Statements.RowlessLane(id, layout))
	for lane := range rowless {
		err = Run(ctx, tx, s.Statements.FillLanes(id, dialect.Layout{First: int(lane), Lanes: 1}))
	}
	return err
}

// movePage moves messages of one state from the lowest retired lane that has some.
func (s *Spool) movePage(ctx context.Context, tx *sql.Tx, id int64, layout dialect.Layout, state int) (moved int, err error) {
	from := dialect.LanePart{Spool: id, State: state}
	find := s.Statements.OldLane(id, layout, state)
	err = tx.QueryRowContext(ctx, find.Text, find.Args...).Scan(&from.Lane)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	byLane, err := s.targets(ctx, tx, from, layout)
	if err != nil {
		return 0, err
	}
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		if err := Run(ctx, tx, s.Statements.MoveToLane(from, byLane[lane], lane)); err != nil {
			return 0, err
		}
		moved += len(byLane[lane])
	}
	return moved, nil
}

// targets locks a page of messages, and returns their ids by the lane to which they go. Those without a key go to one lane.
func (s *Spool) targets(ctx context.Context, tx *sql.Tx, from dialect.LanePart, layout dialect.Layout) (byLane map[int][]int64, err error) {
	query := s.Statements.OfOldLane(from, movePage)
	rows, err := tx.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	byLane = map[int][]int64{}
	without := s.laneOf(layout, nil)
	for rows.Next() {
		var id int64
		var hash sql.NullInt64
		if err := rows.Scan(&id, &hash); err != nil {
			return nil, err
		}
		lane := without
		if hash.Valid {
			lane = LaneOf(layout, hash.Int64)
		}
		byLane[lane] = append(byLane[lane], id)
	}
	return byLane, rows.Err()
}

// HasOldLanes reports whether messages of the spool are still in old lanes.
func (s *Spool) HasOldLanes(ctx context.Context, db Querier, layout dialect.Layout) (bool, error) {
	used, err := SelectIDs(ctx, db, s.Statements.UsedOldLane(s.ID(), layout))
	if err != nil {
		return false, fmt.Errorf("look for messages in old lanes: %w", err)
	}
	return len(used) > 0, nil
}
