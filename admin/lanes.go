package admin

import (
	"context"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Lane is a share of an outbox or a queue.
type Lane struct {
	Number int `json:"lane"`
	// Holder is the name of the member that holds the lane, or, if Held is false, that has held it
	// and did not hand it back. It is "" for a lane that was handed back.
	Holder string `json:"holder,omitempty"`
	// Held is true while the holder's lease lasts. A lane that is not held is taken by the next
	// member that looks for lanes.
	Held bool `json:"held"`
	// Until is when the lease of the holder ends, or has ended; the holder extends it while it
	// lives. It is zero for a lane that was handed back, and for one whose holder was found dead.
	Until time.Time `json:"until,omitzero"`
	// Token is the fencing token of the last holder: it grows each time the lane changes its
	// holder.
	Token int64 `json:"token"`
	// Suspect is true from when a member takes the lane of a process that did not hand it back,
	// until it is clear that no message of the lane has crashed that process.
	Suspect bool `json:"suspect"`
}

// Member is a forwarder of an outbox, or a subscriber or batch of a queue.
type Member struct {
	// Name has the host and the process.
	Name string `json:"member"`
	// Lanes is the number of lanes that it holds.
	Lanes int `json:"lanes"`
	// InFlight is the number of messages that it was handling at its last heartbeat.
	InFlight int `json:"in_flight"`
	// Until is when its membership ends unless it sends a heartbeat.
	Until time.Time `json:"until"`
	// LongCall is its call that has not returned for longest, or nil while none takes long.
	LongCall *Call `json:"long_call,omitempty"`
}

// Lanes lists the lanes of an outbox or a queue in the order of their numbers, and its live members
// by name: the forwarders, or subscribers, that have sent a heartbeat within their lease. An outbox
// or a queue that no process has drained yet has no lanes. A member without lanes waits for its
// share: others hand lanes over, or there are more members than lanes.
//
// All times are of the database's clock. The two are read one after the other, so a lane may have a
// holder that is no member yet.
func (a *Admin) Lanes(ctx context.Context, target Target) ([]Lane, []Member, error) {
	lanes, members, err := a.operator.LaneHolders(ctx, target.stored())
	if err != nil {
		return nil, nil, failed(err)
	}
	return lanes, members, nil
}

// LaneHolders returns the lanes of a spool in order, and its live members by name. A spool that was
// never drained has no lanes yet.
func (o *operator) LaneHolders(ctx context.Context, name string) ([]Lane, []Member, error) {
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

func (o *operator) laneHolders(ctx context.Context, name string) (lanes []Lane, members []Member, err error) {
	s, err := o.find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	lanes, members = []Lane{}, []Member{}
	err = spool.Each(ctx, o.db, dialect.Query{Text: o.statements.LaneHolders, Args: []any{s.ID()}}, func(scan spool.Scan) error {
		var lane Lane
		var until int64
		err := scan(&lane.Number, &lane.Holder, &lane.Token, &until, &lane.Suspect, &lane.Held)
		if until > 0 {
			lane.Until = time.UnixMicro(until)
		}
		lanes = append(lanes, lane)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	err = spool.Each(ctx, o.db, dialect.Query{Text: o.statements.Members, Args: []any{s.ID()}}, func(scan spool.Scan) error {
		var member Member
		var inFlight []byte
		var until int64
		if err := scan(new(int64), &member.Name, &inFlight, &until); err != nil {
			return err
		}
		beat, err := spool.DecodeHeartbeat(inFlight)
		for _, n := range beat.InFlight {
			member.InFlight += n
		}
		member.Until, member.LongCall = time.UnixMicro(until), callOf(beat.LongCall, member.Name)
		members = append(members, member)
		return err
	})
	return lanes, members, err
}
