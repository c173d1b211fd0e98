package operate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// lanesPause is the time between two looks for messages whose lanes processes still hold.
const lanesPause = 100 * time.Millisecond

// errLayoutChanged rolls back a change of a layout that another operator has changed meanwhile.
var errLayoutChanged = errors.New("another operator has changed the number of lanes at the same time")

// errInboxLanes is returned for an inbox.
var errInboxLanes = errors.New("an inbox has a history, and no pending messages: it has no lanes")

// SetLanes gives a spool another number of lanes, and moves its messages to the new lanes, page by page. It returns how many
// it moved itself: drainers move messages, too. The order of each key is kept: see package spool, oldlanes.go.
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
	var s *spool.Spool
	err = spool.UntilNoConflict(func(err error) bool { return errors.Is(err, errLayoutChanged) }, func() (err error) {
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

// switchLanes stores the new layout with the row of the action, unless the spool has that number of lanes already. It returns
// the spool as it is then.
func (o *Operator) switchLanes(ctx context.Context, act *Act, lanes int) (*spool.Spool, error) {
	s, err := o.find(ctx, act.Target)
	if err != nil {
		return nil, err
	}
	before := s.Layout()
	after := dialect.Layout{First: before.Next(), Lanes: lanes}
	if before.Lanes == lanes {
		after = before
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

// storeLayout replaces a layout. Each old lane has a row from then on, which can be retired.
func (o *Operator) storeLayout(ctx context.Context, tx *sql.Tx, id int64, before, after dialect.Layout) error {
	set, err := changed(spool.Directly(ctx, tx, o.statements.SetLayout(id, before, after)))
	if err != nil {
		return err
	}
	if !set {
		return errLayoutChanged
	}
	if err := spool.Run(ctx, tx, o.statements.FillLanes(id, before)); err != nil {
		return err
	}
	return spool.Run(ctx, tx, o.statements.FillLanes(id, after))
}

// moveAll moves messages until none is in an old lane.
func (o *Operator) moveAll(ctx context.Context, s *spool.Spool, report func(Progress)) (moved int, err error) {
	for {
		n, err := o.moveSome(ctx, s)
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
	held := "no process holds one of their lanes"
	if holders := o.holdersBelow(ctx, s); len(holders) > 0 {
		held = "their lanes are held by " + strings.Join(holders, ", ")
	}
	return fmt.Errorf("the number of lanes is changed to %d, and messages may still be in old lanes: %s; forwarders, subscribers and another call with this number go on: %w",
		s.Lanes(), held, err)
}

// holdersBelow returns who holds old lanes, as far as that can be read.
func (o *Operator) holdersBelow(ctx context.Context, s *spool.Spool) (holders []string) {
	lanes, _, err := o.laneHolders(ctx, s.Name())
	if err != nil {
		return nil
	}
	for _, lane := range lanes {
		if lane.Held && lane.Number < s.Layout().First && !slices.Contains(holders, lane.Holder) {
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
