package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

const (
	// lanesPause is the time between two looks for messages whose lanes processes still hold, and waitsInterval that between two reports of what is awaited.
	lanesPause    = 100 * time.Millisecond
	waitsInterval = 3 * time.Second
)

// errInboxLanes is returned for an inbox.
var errInboxLanes = errors.New("an inbox has a history, and no pending messages: it has no lanes")

// SetLanes gives a spool another number of lanes, and moves its messages to the new lanes, page by page. It returns how many
// it moved itself: drainers move messages, too. The order of each key is kept: see package spool, oldlanes.go. While it waits, it
// reports for what.
//
// The number is changed in one transaction. If ctx ends after that, drainers go on with the rest, and so does another call
// with the same number.
func (o *Operator) SetLanes(ctx context.Context, name string, lanes int, report func(Progress)) (moved int, err error) {
	if lanes < 1 || lanes > spool.MaxLanes {
		return 0, failedTo("set the lanes of", name, Invalid(fmt.Errorf("lanes: %d is not between 1 and %d", lanes, spool.MaxLanes)))
	}
	if kind, _ := spool.Named(name); kind == spool.KindInbox {
		return 0, failedTo("set the lanes of", name, Invalid(errInboxLanes))
	}
	act := NewAct(ActSetLanes, name).Noting(fmt.Sprintf("%d lanes", lanes))
	if err := o.awaitProducers(ctx, name, lanes, report); err != nil {
		return 0, failedTo("set the lanes of", name, err)
	}
	var s *spool.Spool
	err = spool.UntilNoConflict(func(err error) bool { return errors.Is(err, spool.ErrOldLayout) }, func() (err error) {
		s, err = o.switchLanes(ctx, act, lanes)
		return err
	})
	if err == nil {
		moved, err = o.moveAll(ctx, s, report)
	}
	if err != nil {
		return moved, failedTo("set the lanes of", name, err)
	}
	return moved, nil
}

// awaitProducers waits until no process uses a layout that the database has lost by going back to an earlier state: the new layout
// may get the same numbers of lanes, and messages of a key would be in two lanes that both count.
func (o *Operator) awaitProducers(ctx context.Context, name string, lanes int, report func(Progress)) error {
	s, err := o.find(ctx, name)
	if err != nil || s.Lanes() == lanes {
		return err
	}
	if o.settling > 0 {
		report(Progress{Waits: fmt.Sprintf("the change begins in %s, when all processes that write messages have read the present number of lanes again", o.settling)})
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.settling):
		return nil
	}
}

// switchLanes stores the new layout with the row of the action, unless the spool has that number of lanes already. It returns
// the spool as it is then.
func (o *Operator) switchLanes(ctx context.Context, act *Act, lanes int) (*spool.Spool, error) {
	s, err := o.find(ctx, act.Target)
	if err != nil {
		return nil, err
	}
	before := s.Layout()
	after, err := o.next(ctx, s, lanes)
	if err != nil {
		return nil, err
	}
	if after.Next()-1 > dialect.LastLane {
		return nil, Invalid(fmt.Errorf("each change uses new numbers of lanes, and those up to %d are used up: see docs/ordering.md", dialect.LastLane))
	}
	err = spool.InTx(ctx, o.db, o.statements, func(tx *sql.Tx) error {
		act.Affected = 0
		if after != before {
			if err := o.storeLayout(ctx, tx, s.ID(), before, after); err != nil {
				return err
			}
			act.Affected = 1
		}
		return o.audit.Record(ctx, tx, act)
	})
	if err != nil {
		return nil, err
	}
	s.Adopt(after)
	o.announce(ctx, s)
	return s, nil
}

// next returns the layout of a spool with another number of lanes, whose numbers no lane has had. They are beyond those of any first layout,
// so a process of a version before migration 24 never writes a message into one of the new lanes: it computes a number from 0 on.
func (o *Operator) next(ctx context.Context, s *spool.Spool, lanes int) (dialect.Layout, error) {
	before := s.Layout()
	if before.Lanes == lanes {
		return before, nil
	}
	var highest int
	query := o.statements.HighestLane(s.ID())
	if err := o.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&highest); err != nil {
		return dialect.Layout{}, err
	}
	return dialect.Layout{First: max(before.Next(), highest+1, spool.MaxLanes), Lanes: lanes}, nil
}

// storeLayout replaces a layout. Each lane of that has a row from then on, which can be retired. On MySQL an insert of rows that exist locks them, so that their leases
// cannot be renewed until the transaction ends: the inserts come last.
func (o *Operator) storeLayout(ctx context.Context, tx *sql.Tx, id int64, before, after dialect.Layout) error {
	set, err := changed(spool.Directly(ctx, tx, o.statements.SetLayout(id, before, after)))
	if err != nil {
		return err
	}
	if !set {
		return spool.ErrOldLayout
	}
	if err := o.dropRetired(ctx, tx, id, before); err != nil {
		return err
	}
	if err := spool.Run(ctx, tx, o.statements.FillLanes(id, before)); err != nil {
		return err
	}
	added, err := spool.Affected(spool.Directly(ctx, tx, o.statements.FillLanes(id, after)))
	if err == nil && added < int64(after.Lanes) {
		err = spool.ErrOldLayout // a lane has appeared since the highest one was read
	}
	return err
}

// droppedAtOnce is the maximum number of rows of lanes that a statement deletes.
const droppedAtOnce = 500

// dropRetired deletes the rows of lanes that were retired before, so that they do not become more with each change. Another lane below may be held
// for as long as a handler takes, in a transaction that has locked its row.
func (o *Operator) dropRetired(ctx context.Context, tx *sql.Tx, id int64, before dialect.Layout) error {
	retired, err := spool.SelectIDs(ctx, tx, o.statements.RetiredLanes(id, before))
	if err != nil {
		return err
	}
	for lanes := range slices.Chunk(slices.Sorted(maps.Keys(retired)), droppedAtOnce) {
		if err := spool.Run(ctx, tx, o.statements.DropRetired(id, lanes)); err != nil {
			return err
		}
	}
	return nil
}

// moveAll moves messages until none is in an old lane.
func (o *Operator) moveAll(ctx context.Context, s *spool.Spool, report func(Progress)) (moved int, err error) {
	said := time.Now()
	for {
		n, err := o.moveSome(ctx, s)
		if errors.Is(err, spool.ErrOldLayout) {
			return moved, err
		}
		if err != nil {
			return moved, o.unfinished(ctx, s, err)
		}
		if n > 0 {
			moved += n
			report(Progress{Done: moved})
			continue
		}
		left, err := s.HasOldLanes(ctx, o.db, s.Layout())
		if err != nil {
			return moved, o.unfinished(ctx, s, err)
		}
		if !left {
			o.announce(ctx, s)
			return moved, nil
		}
		if time.Since(said) >= waitsInterval {
			report(Progress{Done: moved, Waits: "no message is handed out until those in old lanes are moved: " + o.heldBy(ctx, s)})
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return moved, o.unfinished(ctx, s, ctx.Err())
		case <-time.After(lanesPause):
		}
	}
}

// moveSome moves a page. A transaction that has begun when ctx ends may end normally.
func (o *Operator) moveSome(ctx context.Context, s *spool.Spool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ctx, cancel := finishing(ctx)
	defer cancel()
	return s.MoveFromOldLanes(ctx, o.db, s.Layout())
}

// unfinished says what is left to do after an error, and who holds it up.
func (o *Operator) unfinished(ctx context.Context, s *spool.Spool, err error) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	return fmt.Errorf("the number of lanes is changed to %d, and messages may still be in old lanes: %s; forwarders, subscribers and another call with this number go on: %w",
		s.Lanes(), o.heldBy(ctx, s), err)
}

// heldBy says who holds up messages in old lanes.
func (o *Operator) heldBy(ctx context.Context, s *spool.Spool) string {
	if holders := o.holdersOfOld(ctx, s); len(holders) > 0 {
		return "their lanes are held by " + strings.Join(holders, ", ") + ", until the handlers that run there have ended, or the lease of a process that has crashed"
	}
	return "no process holds one of their lanes, so transactions may have locked them"
}

// holdersOfOld returns who holds old lanes, as far as that can be read.
func (o *Operator) holdersOfOld(ctx context.Context, s *spool.Spool) (holders []string) {
	lanes, _, err := o.laneHolders(ctx, s.Name())
	if err != nil {
		return nil
	}
	for _, lane := range lanes {
		if lane.Held && !s.Layout().Has(lane.Number) && !slices.Contains(holders, lane.Holder) {
			holders = append(holders, lane.Holder)
		}
	}
	return holders
}

// announce wakes the drainers of a spool.
func (o *Operator) announce(ctx context.Context, s *spool.Spool) {
	if err := s.Announce(ctx, o.db); err != nil {
		o.logger.Debug("Postbox could not notify other processes, which will find the change when they poll", watermill.LogFields{"err": spool.LogText(err)})
	}
}
