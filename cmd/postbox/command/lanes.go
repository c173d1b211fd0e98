package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

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
		RunE: p.onEach(existing, func(s *session, _ []string) error {
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
		until := moment(lane.Until)
		lane.Until = utc(lane.Until)
		if err := list.add(lane, number(lane.Number), stateOfLane(lane), cell(lane.Holder), until, number(lane.Token)); err != nil {
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
	if len(members) == 0 {
		s.progress("No process handles it.")
	}
	list := s.list("MEMBER", "LANES", "IN FLIGHT", "UNTIL", "LONG CALL", "CALLED WITH")
	for _, m := range members {
		called, until, longCall := "-", moment(m.Until), callCell(m.LongCall)
		if m.LongCall != nil {
			called = number(m.LongCall.ID)
		}
		m.Until, m.LongCall = utc(m.Until), utcCall(m.LongCall)
		if err := list.add(m, cell(m.Name), number(m.Lanes), number(m.InFlight), until, longCall, called); err != nil {
			return err
		}
	}
	return list.end()
}
