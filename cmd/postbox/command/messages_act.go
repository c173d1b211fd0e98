package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

const waitingHelp = `

A parked message gets all its attempts again. A message whose time has come may
be in a handler already: pause the outbox or queue first if that matters.`

func (p *program) runNowCommand() *cobra.Command {
	var choice messageChoice
	cmd := &cobra.Command{
		Use: "run-now [ID...]", Short: "Let messages be handled now", Long: `Let messages be handled now, without waiting for their time.

This is for messages that are scheduled, retrying or parked. A ready message is
left as it is. In an outage, a message that is named by its ID, or that has
failed, is tried at once.` + waitingHelp + chooseMessagesHelp,
		RunE: p.on(func(s *session, args []string) error {
			return s.actOnMessages(args, choice, messageAct{
				action:   action{name: "run-now", done: "made due", noun: "message"},
				question: func(n string) string { return "Let " + n + " be handled now?" },
				waiting:  true,
				act: func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress ...func(admin.Progress)) (int, error) {
					return a.Reschedule(ctx, filter, time.Time{}, progress...)
				},
			})
		}),
	}
	choice.addTo(cmd)
	return cmd
}

func (p *program) rescheduleCommand() *cobra.Command {
	var choice messageChoice
	var at string
	cmd := &cobra.Command{
		Use: "reschedule [ID...] --at TIME", Short: "Let messages wait until another time", Long: `Let messages wait until another time.

This is for messages that are scheduled, retrying or parked.` + waitingHelp + chooseMessagesHelp,
		RunE: p.on(func(s *session, args []string) error {
			if at == "" {
				return usagef("--at is missing: give a time, or a duration from now on")
			}
			until, err := s.future(s.cmd.Context(), "at", at)
			if err != nil {
				return err
			}
			return s.actOnMessages(args, choice, messageAct{
				action:   action{name: "reschedule", done: "rescheduled", noun: "message"},
				question: func(n string) string { return "Let " + n + " wait until " + moment(until) + "?" },
				waiting:  true,
				act: func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress ...func(admin.Progress)) (int, error) {
					return a.Reschedule(ctx, filter, until, progress...)
				},
			})
		}),
	}
	choice.addTo(cmd)
	cmd.Flags().StringVar(&at, "at", "", "when the messages may be handled, as RFC 3339, or as a duration from now on, by the database's clock")
	return cmd
}

func (p *program) buryCommand() *cobra.Command {
	var choice messageChoice
	var reason string
	cmd := &cobra.Command{
		Use: "bury [ID...] --reason TEXT", Short: "Make pending messages dead letters",
		Long: `Make pending messages dead letters, so that the other messages of their keys go
on. If one of them is in a call that hangs, its key waits for the end of the call.

A message that is ready, or whose time has come, may be in a handler already. It
may then have its effect and become a dead letter as well: pause the outbox or
queue first if that matters.` + chooseMessagesHelp,
		RunE: p.on(func(s *session, args []string) error {
			if reason == "" {
				return usagef("--reason is missing: say why, which the dead letter shows as its error")
			}
			return s.actOnMessages(args, choice, messageAct{
				action:    action{name: "bury", done: "buried", noun: "message"},
				question:  func(n string) string { return "Move " + n + " to the dead letters?" },
				asksForID: true,
				act: func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress ...func(admin.Progress)) (int, error) {
					return a.Bury(ctx, filter, reason, progress...)
				},
			})
		}),
	}
	choice.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, which the dead letter shows as its error")
	return cmd
}
