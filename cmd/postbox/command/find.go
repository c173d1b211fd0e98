package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

func (p *program) findCommand() *cobra.Command {
	return &cobra.Command{
		Use: "find TEXT", Short: "Tell what has become of a message, wherever it is",
		Long: `Tell what has become of a message, wherever it is. TEXT is its id or its correlation
id, its ordering key, the number of a message or a dead letter, or a part of the
error of a dead letter, with the same capitals.

The command looks at the pending messages, histories and dead letters of all
outboxes, queues and inboxes, at receipts, and at the audit log, and lists what
has happened in the order of time. Ids of messages in histories, dead letters
and receipts, and numbers, are found however many there are. Everything else is
looked for among 10,000 rows of each place; it says where there are more.

The exit code is 3 if there is no trace. Then the command names the outboxes and
queues that keep no history.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.onSeveral(existing, anyOf, func(s *session, args []string) error {
			text, err := nameOf(args[0])
			if err != nil {
				return err
			}
			return s.find(text)
		}),
	}
}

// maxForget is how many outboxes and queues without a history are named.
const maxForget = 10

func (s *session) find(text string) error {
	a, err := s.admin("")
	if err != nil {
		return err
	}
	found, err := a.Find(s.cmd.Context(), text)
	if err != nil {
		return err
	}
	list := s.list("AT", "WHAT", "OF", "MESSAGE ID", "KEY", "ERROR")
	for _, e := range found.Events {
		e.At = utc(e.At)
		if err := list.add(e, moment(e.At), cell(e.Text), placeOf(e), nameCell(e.MessageID), nameCell(e.Key), short(e.Error)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if found.More {
		s.progress("There is more: these are the first ones.")
	}
	for _, part := range found.Parts {
		s.progress("Looked at %s: there are more.", cell(part))
	}
	if len(found.Events) > 0 {
		return nil
	}
	if len(found.Parts) > 0 {
		s.progress("All pending messages of one: \"postbox messages list --outbox NAME --message-id %s\", or with --queue, or --key.", shellWord(text))
	}
	for _, target := range found.Forget[:min(len(found.Forget), maxForget)] {
		s.progress("The %s keeps no history: \"postbox set --%s %s --history 24h\" keeps what it handles from now on.", target, target.Kind, shellWord(target.Name))
	}
	if more := len(found.Forget) - maxForget; more > 0 {
		s.progress("So do %d others.", more)
	}
	return foundf("there is no trace of %s", nameCell(text))
}

// placeOf names the message or the dead letter of an event, for another command.
func placeOf(e admin.Event) string {
	switch {
	case e.Letter != 0:
		return "dead letter " + number(e.Letter)
	case e.Message != 0:
		return targetCell(e.Target) + ", message " + number(e.Message)
	default:
		return "-"
	}
}
