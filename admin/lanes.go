package admin

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// LaneHolders says which processes share an outbox or a queue, and who has which of its lanes.
type LaneHolders struct {
	// Lanes are in the order of their numbers. An outbox or a queue that no process has drained yet has none.
	Lanes []Lane
	// Members are the forwarders, or subscribers, that have sent a heartbeat within their lease, by name. One without lanes waits for its
	// share: others hand lanes over, or there are more members than lanes.
	Members []Member
}

// Lane is a share of an outbox or a queue.
type Lane struct {
	Number int
	// Holder is the name of the member that holds the lane, or, if Held is false, that has held it and did not hand it back. It is ""
	// for a lane that was handed back.
	Holder string
	// Held is true while the holder's lease lasts. A lane that is not held is taken by the next member that looks for lanes.
	Held bool
	// Until is when the lease ends, or has ended; the holder extends it while it lives. It is zero for a lane that was handed back.
	Until time.Time
	// Token is the fencing token of the last holder: it grows each time the lane changes its holder.
	Token int64
	// Suspect is true from when a member takes the lane of a process that did not hand it back, until it is clear that no message
	// of the lane has crashed that process.
	Suspect bool
}

// Member is a forwarder of an outbox, or a subscriber or batch of a queue.
type Member struct {
	// Name has the host and the process.
	Name string
	// Until is when its membership ends unless it sends a heartbeat.
	Until time.Time
	// Lanes is the number of lanes that it holds.
	Lanes int
	// InFlight is the number of messages that it was handling at its last heartbeat.
	InFlight int
	// LongCall is its call that has not returned for longest, or nil while none takes long.
	LongCall *Call
}

// LaneHolders lists the lanes and the live members of an outbox or a queue. All times are of the database's clock. The two are read one after the
// other, so a lane may have a holder that is no member yet.
func (a *Admin) LaneHolders(ctx context.Context, target Target) (LaneHolders, error) {
	lanes, members, err := a.operator.LaneHolders(ctx, target.spool)
	if err != nil {
		return LaneHolders{}, failed(err)
	}
	found := LaneHolders{Lanes: make([]Lane, len(lanes)), Members: make([]Member, len(members))}
	for i, lane := range lanes {
		found.Lanes[i] = Lane(lane)
	}
	for i, m := range members {
		found.Members[i] = Member{Name: m.Name, Until: m.Until, Lanes: m.Lanes, InFlight: m.InFlight, LongCall: callOf(m.LongCall, m.Name)}
	}
	return found, nil
}

// SetLanes changes the number of lanes of an outbox or a queue, at most 256, while processes write and handle messages. The order of each key is kept, and no message
// is lost or handled twice because of it. It returns how many messages it moved to their new lanes; forwarders and subscribers move others at the same time. It reports
// the progress after each transaction, of at most 1,500 messages, and for what it waits every few seconds, if progress is not nil.
//
// SetLanes first waits 10 s, unless that number is stored already. Then no process uses lanes of a change that the database has lost, by a restore or a failover, before the call
// began, but in the cases that docs/ordering.md names: the new lanes may have their numbers. The number changes in one transaction. From then on no message is handed to a handler or a broker before all messages of the old lanes are moved. A lane is
// free to move when its holder has finished the handlers that are running in it, or its lease has ended. SetLanes returns when all are moved. If ctx ends before, or
// the process crashes, forwarders and subscribers go on with the rest, and so does another call with the same number. The error then says which processes hold old lanes.
//
// A process that writes messages reads the new number within 10 s. Messages that it writes with the old number, also in a transaction that commits much later, are moved before
// any later message of their key is handled. Each such transaction makes all processes read the outbox or queue from its beginning, so during these seconds they handle fewer
// messages.
//
// Each change uses new numbers of lanes, of which there are 32,767 for each outbox and queue. If they are used up, the error is [ErrInvalid]. Processes of a version before
// migration 24 must have been replaced before the first change.
func (a *Admin) SetLanes(ctx context.Context, target Target, lanes int, progress func(Progress)) (int, error) {
	moved, err := a.operator.SetLanes(ctx, target.spool, lanes, reporting(progress))
	if err != nil {
		return moved, failed(err)
	}
	a.logger.Info("Postbox changed the number of lanes", watermill.LogFields{"target": target.String(), "lanes": lanes, "moved": moved})
	return moved, nil
}
