package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// messageFilterFlags choose pending messages by what they are like.
type messageFilterFlags struct {
	status, topic, key, messageID, errorText string
	minAttempts                              int
	createdAfter, createdBefore              string
}

func (f *messageFilterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.status, "status", "", "only messages with this status: ready, scheduled, retrying or parked")
	nameVar(flags, &f.topic, "topic", "only messages with this topic")
	nameVar(flags, &f.key, "key", "only messages with this ordering key")
	nameVar(flags, &f.messageID, "message-id", "only the message with this id of Watermill")
	flags.StringVar(&f.errorText, "error", "", "only messages whose last error has this text in it, with the same capitals")
	flags.IntVar(&f.minAttempts, "min-attempts", 0, "only messages with this number of failed attempts or more")
	flags.StringVar(&f.createdAfter, "created-after", "", "only messages written since then, as RFC 3339, or as a duration before now")
	flags.StringVar(&f.createdBefore, "created-before", "", "only messages written before then")
	completes(cmd, "status", "ready", "scheduled", "retrying", "parked")
}

// described names the flags that are set, for a question.
func (f *messageFilterFlags) described() (parts []string) {
	for _, flag := range []struct{ name, value string }{
		{"status", f.status},
		{"topic", f.topic},
		{"key", f.key},
		{"message-id", f.messageID},
		{"error", f.errorText},
		{"created-after", f.createdAfter},
		{"created-before", f.createdBefore},
	} {
		if flag.value != "" {
			parts = append(parts, fmt.Sprintf("--%s %q", flag.name, flag.value))
		}
	}
	if f.minAttempts != 0 {
		parts = append(parts, fmt.Sprintf("--min-attempts %d", f.minAttempts))
	}
	return parts
}

// ofPending tells whether a flag is set that only pending messages have.
func (f *messageFilterFlags) ofPending() bool {
	return f.status != "" || f.errorText != "" || f.minAttempts != 0 || f.createdAfter != "" || f.createdBefore != ""
}

// filter reads the flags. Durations count from the database's clock.
func (f *messageFilterFlags) filter(ctx context.Context, s *session, target admin.Target) (admin.Filter, error) {
	filter := admin.Filter{
		Target: target, Topic: f.topic, Key: f.key, MessageID: f.messageID, ErrorText: f.errorText, MinAttempts: f.minAttempts,
	}
	var err error
	if filter.Status, err = statusOf(f.status); err != nil {
		return filter, err
	}
	if f.minAttempts < 0 {
		return filter, usagef("--min-attempts: %d is negative: use a number from 0 on", f.minAttempts)
	}
	if filter.From, err = s.past(ctx, "created-after", f.createdAfter); err != nil {
		return filter, err
	}
	filter.Until, err = s.past(ctx, "created-before", f.createdBefore)
	return filter, err
}

const chooseMessagesHelp = `

Name the messages by their ids, or choose them by filters, or choose all with
--all. With filters or --all, the command works in transactions of up to 100
messages, and says how far it got. If it is interrupted, run it again: it goes on
with the messages that are left. It leaves out messages that are written after it
began.`

// messageChoice is how the commands that act on messages choose them.
type messageChoice struct {
	target targetFlags
	messageFilterFlags
	all   bool
	limit int
}

func (c *messageChoice) addTo(cmd *cobra.Command) {
	c.target.addTo(cmd)
	c.messageFilterFlags.addTo(cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, "all pending messages that the command can act on")
	cmd.Flags().IntVar(&c.limit, "limit", 0, "largest number of messages to act on, 0 for all that match")
}

// check says what is wrong with the choice.
func (c *messageChoice) check(args []string) error {
	chosen := len(c.described()) > 0
	switch {
	case len(args) > 0 && (c.all || chosen):
		return usagef("choose messages by ids, or by filters, and not by both")
	case len(args) > 0 && c.limit != 0:
		return usagef("--limit is for filters, and not for ids: all of them are acted on")
	case len(args) == 0 && !c.all && !chosen:
		return usagef("no messages are chosen: give ids, a filter such as --status, or --all")
	case c.limit < 0:
		return usagef("--limit: %d is negative: use a positive number, or 0 for all", c.limit)
	}
	return nil
}

// describe names the filters for a question.
func (c *messageChoice) describe() string {
	parts := c.described()
	if c.all {
		parts = append(parts, "--all")
	}
	if c.limit > 0 {
		parts = append(parts, fmt.Sprintf("--limit %d", c.limit))
	}
	return "messages of " + c.target.one().String() + " with " + strings.Join(parts, " ")
}

// messageAct is what a command does with messages: with one, and with those that a filter chooses.
type messageAct struct {
	action
	question  func(messages string) string
	asksForID bool // also before it acts on messages that were named
	waiting   bool // not on ready ones
	act       func(ctx context.Context, a *admin.Admin, filter admin.Filter, progress ...func(admin.Progress)) (int, error)
}

// actOnMessages asks the question, and then acts on the messages that are named or chosen.
func (s *session) actOnMessages(args []string, choice messageChoice, what messageAct) error {
	ctx := s.cmd.Context()
	if err := choice.check(args); err != nil {
		return err
	}
	ids, a, err := s.named(args)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		if what.asksForID {
			if err := s.confirm(what.question(count(len(ids), "message") + " of " + choice.target.one().String())); err != nil {
				return err
			}
		}
		return s.each(what.action, given(ids), func(ctx context.Context, id int64) error {
			_, err := what.act(ctx, a, admin.Filter{Target: choice.target.one(), ID: id})
			return err
		})
	}
	filter, err := choice.filter(ctx, s, choice.target.one())
	if err != nil {
		return err
	}
	if what.waiting && filter.Status == admin.Ready {
		return usagef("--status: a ready message is handled as soon as possible: use scheduled, retrying or parked")
	}
	filter.Limit, filter.All = choice.limit, choice.all
	if filter, err = s.until(ctx, filter); err != nil {
		return err
	}
	if !s.yes {
		found, err := countMessages(ctx, a, filter, what.waiting)
		if err != nil {
			return err
		}
		if found.n == 0 {
			return s.each(what.action, given(nil), nil)
		}
		if err := s.confirm(found.question(what.question, "message"), found.chosen(choice.describe())); err != nil {
			return err
		}
	}
	return s.all(what.action, func(ctx context.Context, progress func(admin.Progress)) (int, error) {
		return what.act(ctx, a, filter, progress)
	})
}

// maxCounted is how many things are counted for a question: counting reads each of them.
const maxCounted = 10_000

// matches is what matches a filter: how many things, the first two of them, and the last one.
type matches struct {
	n        int
	examples []string
}

// maxExamples is how many things a question shows.
const maxExamples = 3

func (m *matches) add(line func() string) {
	if m.n++; m.n > maxExamples {
		m.examples = m.examples[:maxExamples-1]
	}
	m.examples = append(m.examples, line())
}

// question asks whether to act, below the examples.
func (m *matches) question(ask func(things string) string, noun string) string {
	number := count(m.n, noun)
	if m.n > maxCounted {
		number = "more than " + count(maxCounted, noun)
	}
	return "  " + strings.Join(m.examples, "\n  ") + "\n" + ask(number)
}

// chosen says how they were chosen, above the examples.
func (m *matches) chosen(by string) string {
	if m.n > maxExamples {
		by += ", such as"
	}
	return by
}

// countMessages counts the messages that match, for a question.
func countMessages(ctx context.Context, a *admin.Admin, filter admin.Filter, waiting bool) (all matches, err error) {
	most := mostCounted(filter.Limit)
	for _, status := range statusesOf(filter.Status, waiting) {
		filter.Status, filter.After = status, ""
		for more := true; more && all.n < most; more = filter.After != "" {
			filter.Limit = min(most-all.n, pageLimit)
			found, next, err := a.Messages(ctx, filter)
			if err != nil {
				return matches{}, err
			}
			for _, m := range found {
				all.add(func() string {
					return fmt.Sprintf("%d  %s  topic %s  key %s  id %s", m.ID, m.Status, nameCell(m.Topic), nameCell(m.Key), nameCell(m.MessageID))
				})
			}
			filter.After = next
		}
	}
	return all, nil
}

// mostCounted is up to how many things are counted of those that an action with this limit may act
// on.
func mostCounted(limit int) int {
	if limit == 0 || limit > maxCounted {
		return maxCounted + 1
	}
	return limit
}

// statusesOf lists the statuses that a filter chooses, each of which is a list of its own.
func statusesOf(status admin.Status, waiting bool) []admin.Status {
	switch {
	case status == "" && waiting:
		return []admin.Status{admin.Scheduled, admin.Retrying, admin.Parked}
	default:
		return []admin.Status{status}
	}
}
