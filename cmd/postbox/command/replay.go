package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// replayFlags choose messages of the history, and say what becomes of them.
type replayFlags struct {
	target                targetFlags
	topic, key, messageID string
	doneAfter, doneBefore string
	all                   bool

	to, toQueue, toTopic string
	newIDs               bool
	after                string
	limit                int
}

// replayRecord says how far a replay has got.
type replayRecord struct {
	Action  string `json:"action"`
	Done    int    `json:"done"`
	Skipped int    `json:"skipped"`
	Stopped bool   `json:"stopped"`
	// Cursor is that of the last message; empty if it is not known whether the last part was
	// replayed.
	Cursor string `json:"cursor,omitempty"`
}

func (p *program) replayCommand() *cobra.Command {
	var flags replayFlags
	cmd := &cobra.Command{
		Use: "replay", Short: "Let messages of the history be handled again",
		Long: `Let messages of the history be handled or published again, in the order in which
they were written. Choose them by filters, or all with --all.

A queue handles each of them again. With --to-outbox, an outbox publishes the
messages of a queue on the topic that they came from, or on --to-topic. Inboxes
ignore a message while they remember it, 7 days by default, unless --new-ids gives
it another id.

The messages that an inbox has handled, which --inbox chooses, need --to-outbox,
which publishes them, or --to-queue, whose handler works on them.

The command works in transactions of up to 100 messages, and says how far it got.
The messages stay in the history. To go on after an interruption, run the command
again with the cursor that it has printed as --after: without it, all are
replayed once more. After a crash "postbox audit" has the cursor.

Copies that the same outbox or queue has handled are in its history, too. A
second replay with the same filter finds them: leave them out with
--done-before and the time of the first replay.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error { return s.replay(flags) }),
	}
	flags.target.addWithInboxTo(cmd)
	nameVar(cmd.Flags(), &flags.topic, "topic", "only messages with this topic")
	nameVar(cmd.Flags(), &flags.key, "key", "only messages with this ordering key")
	nameVar(cmd.Flags(), &flags.messageID, "message-id", "only the message with this id of Watermill")
	cmd.Flags().StringVar(&flags.doneAfter, "done-after", "", "only messages done since then, as RFC 3339, or as a duration before now")
	cmd.Flags().StringVar(&flags.doneBefore, "done-before", "", "only messages done before then")
	cmd.Flags().BoolVar(&flags.all, "all", false, "all messages of the history")
	nameVar(cmd.Flags(), &flags.to, "to-outbox", "outbox that publishes the messages, the outbox or queue itself unless set")
	nameVar(cmd.Flags(), &flags.toQueue, "to-queue", "queue whose handler works on the messages of an inbox")
	cmd.MarkFlagsMutuallyExclusive("to-outbox", "to-queue")
	nameVar(cmd.Flags(), &flags.toTopic, "to-topic", "topic on which an outbox publishes them")
	cmd.Flags().BoolVar(&flags.newIDs, "new-ids", false, "give each message a new id, so that inboxes do not ignore it")
	cmd.Flags().StringVar(&flags.after, "after", "", "cursor after which an interrupted replay goes on")
	cmd.Flags().IntVar(&flags.limit, "limit", 0, "largest number of messages, 0 for all that match")
	return cmd
}

func (s *session) replay(flags replayFlags) error {
	chosen := flags.described()
	if len(chosen) == 0 {
		return usagef("no messages are chosen: give a filter such as --done-after, or --all")
	}
	for _, bound := range []string{flags.doneAfter, flags.doneBefore} {
		if _, err := parseDuration(bound); err == nil && flags.after != "" {
			return usagef("--after: the duration %s is another time now, so other messages would be chosen: give the time that \"postbox audit\" has of the interrupted replay", bound)
		}
	}
	if flags.target.inbox != "" && flags.to == "" && flags.toQueue == "" {
		return usagef("--inbox: an inbox handles what a broker delivers: add --to-outbox to publish the messages, or --to-queue")
	}
	ctx := s.cmd.Context()
	after, err := s.past(ctx, "done-after", flags.doneAfter)
	if err != nil {
		return err
	}
	before, err := s.past(ctx, "done-before", flags.doneBefore)
	if err != nil {
		return err
	}
	from := flags.target.one()
	filter := admin.Filter{Target: from, All: flags.all, Topic: flags.topic, Key: flags.key, MessageID: flags.messageID, From: after, Until: before, After: flags.after, Limit: flags.limit}
	a, err := s.admin("")
	if err != nil {
		return err
	}
	again := flags.again()
	again.DryRun = true
	if _, err := a.Replay(ctx, filter, again); err != nil {
		return err
	}
	again.DryRun = false
	if filter, err = s.until(ctx, filter); err != nil {
		return err
	}
	if !s.yes {
		if err := s.confirmReplay(ctx, a, flags, filter); err != nil {
			return err
		}
	}
	return s.runReplay(ctx, a, from, filter, again)
}

// again says what becomes of the messages.
func (f *replayFlags) again() admin.Again {
	again := admin.Again{Topic: f.toTopic, NewIDs: f.newIDs}
	switch {
	case f.to != "":
		again.To = admin.Outbox(f.to)
	case f.toQueue != "":
		again.To = admin.Queue(f.toQueue)
	}
	return again
}

// confirmReplay asks, unless no message matches.
func (s *session) confirmReplay(ctx context.Context, a *admin.Admin, flags replayFlags, filter admin.Filter) error {
	from, to := flags.target.one(), flags.again().To
	if to == (admin.Target{}) {
		to = from
	}
	ask := func(messages string) string { return fmt.Sprintf("Let %s be handled again by the %s?", messages, to) }
	chosen := "history of the " + from.String() + ", messages of " + strings.Join(flags.described(), " ")
	question := ask("the messages that are left") // how many of all are, the cursor does not say
	if flags.after == "" {
		done := filter
		done.Status = admin.Done
		found, err := countMessages(ctx, a, done, false)
		if err != nil || found.n == 0 {
			return err
		}
		question, chosen = found.question(ask, "message"), found.chosen(chosen)
	}
	return s.confirm(question, chosen)
}

// described names the flags that choose messages.
func (f *replayFlags) described() (parts []string) {
	for _, flag := range []struct{ name, value string }{
		{"topic", f.topic},
		{"key", f.key},
		{"message-id", f.messageID},
		{"done-after", f.doneAfter},
		{"done-before", f.doneBefore},
	} {
		if flag.value != "" {
			parts = append(parts, fmt.Sprintf("--%s %q", flag.name, flag.value))
		}
	}
	if f.all {
		parts = append(parts, "--all")
	}
	return parts
}

func (s *session) runReplay(ctx context.Context, a *admin.Admin, target admin.Target, filter admin.Filter, again admin.Again) error {
	const noun = "message"
	far := s.howFar()
	did, err := a.Replay(ctx, filter, again, func(p admin.Progress) {
		far.say(p.Done, "%s replayed so far, up to the cursor %s.", count(p.Done, noun), p.Cursor)
	})
	far.end()
	if neverBegan(err) {
		return err
	}
	record := replayRecord{Action: "replay", Done: did.Done, Skipped: did.Skipped, Cursor: did.Cursor}
	record.Stopped = ctx.Err() != nil && errors.Is(err, context.Canceled)
	text := count(did.Done, noun) + " replayed.\n"
	if did.Skipped > 0 {
		text += are(did.Skipped, noun) + " not replayed: the history has kept only a part, the metadata cannot be decoded, or the retention is over.\n"
	}
	if printErr := s.one(record, text); printErr != nil {
		return errors.Join(err, printErr)
	}
	goOn := ""
	switch {
	case did.Cursor != "":
		goOn = ": to go on, add --after " + did.Cursor + " (write durations as the times that \"postbox audit\" has)"
	case errors.Is(err, postbox.ErrCommitUnknown):
		goOn = `, and perhaps up to 100 more: to go on, take the cursor from "postbox audit", and add it as --after`
	}
	if err == nil && did.Done+did.Skipped == 0 && filter.After == "" {
		s.notInHistory(target)
	}
	switch {
	case record.Stopped:
		return stoppedf("interrupted after %s%s", count(did.Done, noun), goOn)
	case err != nil:
		return fmt.Errorf("ended after %s%s: %w", count(did.Done, noun), goOn, err)
	}
	return nil
}
