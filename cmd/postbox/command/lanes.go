package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// laneRecord is a lane.
type laneRecord struct {
	Lane    int       `json:"lane"`
	Holder  string    `json:"holder,omitempty"`
	Held    bool      `json:"held"`
	Until   time.Time `json:"until,omitzero"`
	Token   int64     `json:"token"`
	Suspect bool      `json:"suspect"`
}

// memberRecord is a process that shares the lanes.
type memberRecord struct {
	Member   string      `json:"member"`
	Lanes    int         `json:"lanes"`
	InFlight int         `json:"in_flight"`
	Until    time.Time   `json:"until"`
	LongCall *admin.Call `json:"long_call,omitempty"`
}

func (p *program) lanesCommand() *cobra.Command {
	var target targetFlags
	var members bool
	cmd := &cobra.Command{
		Use: "lanes", Short: "Show who holds which lane",
		Long: `Show who holds which lane of an outbox or a queue, until when, and under which
fencing token. STATE is held, free (handed back), or expired: the holder did not
extend its lease, and the next process takes the lane. A suspect lane may have a
message that has crashed its process.

With --members, show the processes that share the lanes instead, also those
without a lane. LONG CALL is for how long the publisher or the handler has not
returned, and CALLED WITH the id of its message, for "postbox messages show".`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			lanes, holders, err := a.Lanes(s.cmd.Context(), target.one())
			if err != nil {
				return err
			}
			if members {
				return s.listMembers(holders)
			}
			return s.listLanes(lanes)
		}),
	}
	target.addTo(cmd)
	cmd.Flags().BoolVar(&members, "members", false, "show the processes that share the lanes")
	return cmd
}

func (s *session) listLanes(lanes []admin.Lane) error {
	list := s.list("LANE", "STATE", "HOLDER", "UNTIL", "TOKEN")
	for _, lane := range lanes {
		record := laneRecord{lane.Number, lane.Holder, lane.Held, utc(lane.Until), lane.Token, lane.Suspect}
		if err := list.add(record, number(lane.Number), stateOfLane(lane), cell(lane.Holder), moment(lane.Until), number(lane.Token)); err != nil {
			return err
		}
	}
	return list.end()
}

func stateOfLane(lane admin.Lane) string {
	state := "free"
	switch {
	case lane.Held:
		state = "held"
	case lane.Holder != "":
		state = "expired"
	}
	if lane.Suspect {
		state += ", suspect"
	}
	return state
}

func (s *session) listMembers(members []admin.Member) error {
	list := s.list("MEMBER", "LANES", "IN FLIGHT", "UNTIL", "LONG CALL", "CALLED WITH")
	for _, m := range members {
		record, called := memberRecord{m.Name, m.Lanes, m.InFlight, utc(m.Until), utcCall(m.LongCall)}, "-"
		if m.LongCall != nil {
			called = number(m.LongCall.ID)
		}
		if err := list.add(record, cell(m.Name), number(m.Lanes), number(m.InFlight), moment(m.Until), callCell(m.LongCall), called); err != nil {
			return err
		}
	}
	return list.end()
}
