package command

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

func (p *program) topicsCommand() *cobra.Command {
	return group("topics", "List, pause and resume topics of an outbox", `List, pause and resume topics of an outbox.

The topics are those of the outbox "outbox", unless --outbox names another one.
All messages of a queue have one topic: see "postbox pause".`,
		p.topicsListCommand(), p.topicsPauseCommand(), p.topicsResumeCommand())
}

// outboxFlag chooses an outbox.
func outboxFlag(cmd *cobra.Command) *string {
	outbox := defaultOutbox
	nameVar(cmd.Flags(), &outbox, "outbox", "name of the outbox")
	return &outbox
}

func (p *program) topicsListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the paused topics", Long: "List the paused topics, the one that was paused first at the top.",
		Args: arguments(cobra.NoArgs),
	}
	outbox := outboxFlag(cmd)
	cmd.RunE = p.onEach(existing, func(s *session, _ []string) error {
		a, err := s.admin("")
		if err != nil {
			return err
		}
		topics, err := a.Paused(s.cmd.Context(), admin.Outbox(*outbox))
		if err != nil {
			return err
		}
		list := s.list("TOPIC", "PAUSED SINCE", "UNTIL", "BY", "REASON")
		for _, topic := range topics {
			if topic.Topic == "" { // a key
				continue
			}
			topic.Since, topic.Until = utc(topic.Since), utc(topic.Until)
			if err := list.add(topic, nameCell(topic.Topic), moment(topic.Since), moment(topic.Until), nameCell(topic.By), short(topic.Reason)); err != nil {
				return err
			}
		}
		return list.end()
	})
	return cmd
}

func (p *program) topicsPauseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pause TOPIC", Short: "Stop the messages of one topic",
		Long: `Stop the messages of one topic of an outbox, in all processes, until the topic is
resumed. Messages can still be written to it. Other topics go on, also with
messages of the same keys, unless the first message of a key has been tried: then
the key waits in all topics. No attempt is counted, and nothing is lost.

The command asks first if no message of the topic is pending, in the history or
a dead letter: it may be a typing error.`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	outbox := outboxFlag(cmd)
	var flags pauseFlags
	flags.addTo(cmd)
	cmd.RunE = p.on(func(s *session, args []string) error {
		topic, err := nameOf(args[0])
		if err != nil {
			return err
		}
		a, err := s.admin("")
		if err != nil {
			return err
		}
		if seen, err := a.Seen(s.cmd.Context(), admin.Outbox(*outbox), topic); err == nil && !seen { // an error is that of the pause, too
			question := fmt.Sprintf("No message of topic %s is pending, in the history or a dead letter. Pause it all the same?", nameCell(topic))
			if err := s.confirm(question, admin.Outbox(*outbox).String()); err != nil {
				return err
			}
		}
		end, err := s.pause(a, admin.Filter{Target: admin.Outbox(*outbox), Topic: topic}, flags)
		if err != nil {
			return err
		}
		return s.changedTopic(admin.Outbox(*outbox), "pause topic", topic, "is paused"+end+". Processes notice within a second")
	})
	return cmd
}

func (p *program) topicsResumeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "resume TOPIC", Short: "Let the messages of one topic go on", Long: "Let the messages of one topic of an outbox go on.",
		Args: arguments(cobra.ExactArgs(1)),
	}
	outbox := outboxFlag(cmd)
	cmd.RunE = p.on(func(s *session, args []string) error {
		topic, err := nameOf(args[0])
		if err != nil {
			return err
		}
		a, err := s.admin("")
		if err != nil {
			return err
		}
		target := admin.Outbox(*outbox)
		paused, err := a.Paused(s.cmd.Context(), target)
		if err != nil {
			return err
		}
		if err := a.Resume(s.cmd.Context(), admin.Filter{Target: target, Topic: topic}); err != nil {
			return err
		}
		if !slices.ContainsFunc(paused, func(p admin.Paused) bool { return p.Topic == topic }) {
			s.progress("The topic was not paused: check how it is written, with \"postbox topics list\".")
		}
		return s.changedTopic(target, "resume topic", topic, "goes on")
	})
	return cmd
}

// changedTopic prints that a topic was changed.
func (s *session) changedTopic(target admin.Target, action, topic, what string) error {
	record := changeRecord{Action: action, Target: target, Topic: topic}
	return s.one(record, fmt.Sprintf("Topic %s of %s %s.\n", nameCell(topic), record.Target, what))
}
