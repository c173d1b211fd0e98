package operate

import (
	"context"
	"database/sql"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Lane is the state of a lane.
type Lane struct {
	Number  int
	Holder  string // the present or the last one; empty after it was handed back
	Held    bool   // the lease lasts
	Until   time.Time
	Token   int64
	Suspect bool
}

// Member is a live drainer of a spool.
type Member struct {
	Name     string
	Until    time.Time
	InFlight int
	Lanes    int // that it holds
	LongCall *spool.Call
}

// LaneHolders returns the lanes of a spool in order, and its live members by name. A spool that was never drained has no lanes yet.
func (o *Operator) LaneHolders(ctx context.Context, name string) ([]Lane, []Member, error) {
	lanes, members, err := o.laneHolders(ctx, name)
	if err != nil {
		return nil, nil, failedTo("list lanes of", name, err)
	}
	held := map[string]int{}
	for _, lane := range lanes {
		if lane.Held {
			held[lane.Holder]++
		}
	}
	for i := range members {
		members[i].Lanes = held[members[i].Name]
	}
	return lanes, members, nil
}

func (o *Operator) laneHolders(ctx context.Context, name string) (lanes []Lane, members []Member, err error) {
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	err = eachRow(ctx, o.db, dialect.Query{Text: o.statements.LaneHolders, Args: []any{s.ID()}}, func(rows *sql.Rows) error {
		var lane Lane
		var until int64
		err := rows.Scan(&lane.Number, &lane.Holder, &lane.Token, &until, &lane.Suspect, &lane.Held)
		if until > 0 {
			lane.Until = time.UnixMicro(until)
		}
		lanes = append(lanes, lane)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = eachRow(ctx, o.db, dialect.Query{Text: o.statements.MembersOf, Args: []any{s.ID()}}, func(rows *sql.Rows) error {
		var member Member
		var inFlight []byte
		var until int64
		if err := rows.Scan(&member.Name, &inFlight, &until); err != nil {
			return err
		}
		beat, err := spool.DecodeHeartbeat(inFlight)
		for _, n := range beat.InFlight {
			member.InFlight += n
		}
		member.Until, member.LongCall = time.UnixMicro(until), beat.LongCall
		members = append(members, member)
		return err
	})
	return lanes, members, err
}

// eachRow runs a query.
func eachRow(ctx context.Context, db spool.Querier, query dialect.Query, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
