package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

const waitingHelp = `

A parked message gets all its attempts again. A message whose time has come may
be in a handler already: pause the outbox or queue first if that matters.`

func (p *program) runNowCommand() *cobra.Command {
	var target targetFlags
	cmd := &cobra.Command{
		Use: "run-now ID...", Short: "Let messages be handled now", Long: `Let messages be handled now, without waiting for their time.

This is for messages that are scheduled, retrying or parked. A ready message is
left as it is.` + waitingHelp,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			return s.actOnMessages(args, action{name: "run-now", done: "made due", noun: "message"}, func(ctx context.Context, a *admin.Admin, id int64) error {
				return a.RunNow(ctx, target.one(), id)
			})
		}),
	}
	target.addTo(cmd)
	return cmd
}

func (p *program) rescheduleCommand() *cobra.Command {
	var target targetFlags
	var at string
	cmd := &cobra.Command{
		Use: "reschedule ID... --at TIME", Short: "Let messages wait until another time", Long: `Let messages wait until another time.

This is for messages that are scheduled, retrying or parked.` + waitingHelp,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			if at == "" {
				return usagef("--at is missing: give a time, or a duration from now on")
			}
			until, err := s.future(s.cmd.Context(), "at", at)
			if err != nil {
				return err
			}
			return s.actOnMessages(args, action{name: "reschedule", done: "rescheduled", noun: "message"}, func(ctx context.Context, a *admin.Admin, id int64) error {
				return a.Reschedule(ctx, target.one(), id, until)
			})
		}),
	}
	target.addTo(cmd)
	cmd.Flags().StringVar(&at, "at", "", "when the messages may be handled, as RFC 3339, or as a duration from now on, by the database's clock")
	return cmd
}

func (p *program) buryCommand() *cobra.Command {
	var target targetFlags
	var reason string
	cmd := &cobra.Command{
		Use: "bury ID... --reason TEXT", Short: "Make pending messages dead letters",
		Long: `Make pending messages dead letters, so that the other messages of their keys go
on.

A message that is ready, or whose time has come, may be in a handler already. It
may then have its effect and become a dead letter as well: pause the outbox or
queue first if that matters.`,
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			if reason == "" {
				return usagef("--reason is missing: say why, which the dead letter shows as its error")
			}
			ids, err := idsOf(args)
			if err != nil {
				return err
			}
			if err := s.confirm("Make " + count(len(ids), "message") + " of " + recordOf(target.one()).String() + " dead letters?"); err != nil {
				return err
			}
			return s.actOnMessages(args, action{name: "bury", done: "buried", noun: "message"}, func(ctx context.Context, a *admin.Admin, id int64) error {
				return a.Bury(ctx, target.one(), id, reason)
			})
		}),
	}
	target.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, which the dead letter shows as its error")
	return cmd
}

func (s *session) actOnMessages(args []string, what action, act func(ctx context.Context, a *admin.Admin, id int64) error) error {
	ids, a, err := s.named(args)
	if err != nil {
		return err
	}
	return s.each(what, given(ids), func(ctx context.Context, id int64) error { return act(ctx, a, id) })
}
