package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// drainPause is the time between two looks of drain. A look reads one message of each target.
const drainPause = 500 * time.Millisecond

// drainProgress is the time between two lines of progress.
const drainProgress = 10 * time.Second

// drainRecord says whether a target is empty.
type drainRecord struct {
	targetRecord
	Empty bool `json:"empty"`
}

func (p *program) drainCommand() *cobra.Command {
	var target targetFlags
	timeout := durationFlag{time.Minute}
	cmd := &cobra.Command{
		Use: "drain", Short: "Wait until outboxes and queues are empty",
		Long: `Wait until no message is pending: in all outboxes and queues, or in the one that
--outbox or --queue names. The command only waits: forwarders and subscribers
handle the messages. Stop the producers first.

Messages that are scheduled, paused or parked count as pending. Dead letters do
not.

The exit code is 0 if all are empty, and 3 if one is not empty when --timeout is
over.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			targets, err := s.targets(s.cmd.Context(), a, target)
			if err != nil {
				return err
			}
			left, err := s.drain(s.cmd.Context(), a, targets, timeout.Duration)
			if err != nil {
				return err
			}
			return s.drained(targets, left, timeout.Duration)
		}),
	}
	target.addFilterTo(cmd)
	cmd.Flags().Var(&timeout, "timeout", "how long to wait, 0s to look once")
	return cmd
}

// targets returns the chosen target, or all.
func (s *session) targets(ctx context.Context, a *admin.Admin, chosen targetFlags) ([]admin.Target, error) {
	if chosen.any() {
		return []admin.Target{chosen.one()}, nil
	}
	queues, err := a.Queues(ctx)
	targets := make([]admin.Target, len(queues))
	for i, info := range queues {
		targets[i] = info.Target
	}
	return targets, err
}

// drain waits, and returns the targets that are not empty.
func (s *session) drain(ctx context.Context, a *admin.Admin, targets []admin.Target, timeout time.Duration) (left []admin.Target, err error) {
	begin := time.Now()
	ticker := time.NewTicker(drainPause)
	defer ticker.Stop()
	for said := begin; ; {
		if left, err = notEmpty(ctx, a, targets); err != nil || len(left) == 0 || time.Since(begin) >= timeout {
			return left, err
		}
		if time.Since(said) >= drainProgress {
			said = time.Now()
			s.progress("%s not empty after %s.", are(len(left), outboxOrQueue), span(time.Since(begin).Round(time.Second)))
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-ticker.C:
		}
	}
}

// notEmpty looks at all targets, since a message of one may lead to one of another.
func notEmpty(ctx context.Context, a *admin.Admin, targets []admin.Target) ([]admin.Target, error) {
	var left []admin.Target
	for _, target := range targets {
		messages, err := a.Messages(ctx, admin.MessageFilter{Target: target, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(messages) > 0 {
			left = append(left, target)
		}
	}
	return left, nil
}

func (s *session) drained(targets, left []admin.Target, timeout time.Duration) error {
	full := map[admin.Target]bool{}
	for _, target := range left {
		full[target] = true
	}
	list := s.list("OUTBOX OR QUEUE", "EMPTY")
	for _, target := range targets {
		record := drainRecord{recordOf(target), !full[target]}
		if err := list.add(record, record.cell(), yesNo(record.Empty)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if len(left) > 0 {
		return foundf("not empty after %s: %d of %s", timeout, len(left), count(len(targets), outboxOrQueue))
	}
	return nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
