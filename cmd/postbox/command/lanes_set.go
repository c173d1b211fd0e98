package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// lanesSetRecord says what was done to change the number of lanes.
type lanesSetRecord struct {
	Action string       `json:"action"`
	Target targetRecord `json:"target"`
	Lanes  int          `json:"lanes"`
	// Moved is the number of messages that the command has moved. Forwarders and subscribers may have moved others.
	Moved int `json:"moved"`
}

func (p *program) lanesSetCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "set NUMBER", Short: "Change the number of lanes",
		Long: `Change the number of lanes of an outbox or a queue, at most 256, and move its
messages to the new lanes. Processes go on writing and handling messages, and
the order of each key is kept. From the change until all messages are moved, no
message is handed out: that takes as long as the handlers that are running, and
some seconds for 100,000 messages.

The command waits 10 s before the change. Then no process uses lanes that were
lost by a restore of the database or by a failover before, with three exceptions:
see docs/ordering.md.

If the command is interrupted, forwarders and subscribers go on, and so does the
same command. All processes must have a version that knows migration 24. See
docs/ordering.md, and docs/security.md for the rights.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			lanes, err := strconv.Atoi(args[0])
			if err != nil {
				return usagef("the number of lanes %.60q is not a number", args[0])
			}
			if lanes < 1 || lanes > dialect.MaxLanes {
				return usagef("the number of lanes %d is not between 1 and %d", lanes, dialect.MaxLanes)
			}
			if err := s.exists(s.cmd.Context(), target); err != nil {
				return err
			}
			if err := s.hasRights(s.cmd.Context(), s.laneRights(), "operator of lanes"); err != nil {
				return err
			}
			question := fmt.Sprintf("Change the number of lanes of %s to %d? All processes that use it must know migration 24.", recordOf(target.one()), lanes)
			if err := s.confirm(question); err != nil {
				return err
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			return s.setLanes(a, target.one(), lanes)
		}),
	}
	target.addTo(cmd)
	return cmd
}

// laneRights are those that an operator needs beside the usual ones.
func (s *session) laneRights() []right {
	const none = -1
	return []right{
		{"UPDATE (first_lane, lanes)", "spools", s.statements.SetLayout(none, dialect.Layout{}, dialect.Layout{})},
		{"INSERT", "lanes", s.statements.FillLanes(none, dialect.Layout{})},
		{"UPDATE", "lanes", s.statements.RetireLanes(none, nil)},
		{"DELETE", "lanes", s.statements.DropRetired(none, nil)},
		{"UPDATE (lane)", "messages", s.statements.MoveToLane(dialect.LanePart{Spool: none}, nil, 0)},
	}
}

// setLanes changes the number, and prints how far it got and for what it waits. A signal ends it after the transaction that is running.
func (s *session) setLanes(a *admin.Admin, target admin.Target, lanes int) error {
	ctx, printed := s.cmd.Context(), 0
	moved, err := a.SetLanes(ctx, target, lanes, func(p admin.Progress) {
		if p.Waits != "" {
			s.progress("Waiting: %s.", p.Waits)
		}
		if p.Done-printed >= laneSteps {
			printed = p.Done
			s.progress("%s moved so far.", count(p.Done, "message"))
		}
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return stoppedf("interrupted: %s", lines(err.Error()))
	}
	if err != nil {
		return err
	}
	record := lanesSetRecord{"set lanes", recordOf(target), lanes, moved}
	return s.one(record, fmt.Sprintf("The %s has %s, and no message is in an old one. This command has moved %s; forwarders and subscribers may have moved others.\n",
		recordOf(target), count(lanes, "lane"), count(moved, "message")))
}

// laneSteps is after how many messages the progress is printed.
const laneSteps = 10_000
