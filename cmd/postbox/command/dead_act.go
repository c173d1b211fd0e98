package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

const chooseHelp = `

Name the dead letters by their ids, or choose them by filters, or choose all
with --all. With filters or --all, the command works in transactions of up to 100
letters, and says how far it got. If it is interrupted, run it again: it goes on
with the letters that are left. Letters that the command cannot act on do not
count for --limit.`

// letterChoice is how the commands that act on letters choose them.
type letterChoice struct {
	letterFlags
	all bool
}

func (c *letterChoice) addTo(cmd *cobra.Command) {
	c.letterFlags.addTo(cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, "all dead letters that are not resolved")
	cmd.Flags().IntVar(&c.limit, "limit", 0, "largest number of letters to act on, 0 for all that match")
}

// describe names the filters for a question.
func (c *letterChoice) describe() string {
	parts := c.described()
	if c.all {
		parts = append(parts, "--all")
	}
	if c.limit > 0 {
		parts = append(parts, fmt.Sprintf("--limit %d", c.limit))
	}
	return "dead letters of " + strings.Join(parts, " ")
}

// check says what is wrong with the choice.
func (c *letterChoice) check(args []string) error {
	switch {
	case len(args) > 0 && (c.all || c.chosen()):
		return usagef("choose dead letters by ids, or by filters, and not by both")
	case len(args) > 0 && c.limit != 0:
		return usagef("--limit is for filters, and not for ids: all of them are acted on")
	case len(args) == 0 && !c.all && !c.chosen():
		return usagef("no dead letters are chosen: give ids, a filter such as --topic, or --all")
	}
	return nil
}

func (p *program) requeueCommand() *cobra.Command {
	var choice letterChoice
	var through string
	var again admin.Again
	cmd := &cobra.Command{
		Use: "requeue [ID...]", Short: "Let the messages of dead letters be handled again",
		Long: `Let the messages of dead letters be handled again, with all their attempts. Each
comes after the messages of its key that are pending now. A message that an
inbox got from a broker is published again, through the outbox that --through
names, on the topic on which it came, and with the id that it had.` + againHelp + chooseHelp + `

Letters that cannot be requeued are reported, and stay.`,
		RunE: p.on(func(s *session, args []string) error {
			a, err := s.admin(through)
			if err != nil {
				return err
			}
			// A few named letters are no risk: requeueing loses nothing.
			question := func(n string) string {
				return "Requeue " + n + "? Each goes behind the messages of its key that wait now."
			}
			if len(args) > 0 {
				question = nil
			}
			return s.actOnLetters(a, args, choice, action{name: "requeue", done: "requeued", noun: "dead letter"}, question,
				func(ctx context.Context, filter admin.Filter, progress ...func(admin.Progress)) (int, error) {
					if filter.ID != 0 {
						s.sayBehind(ctx, a, filter.ID)
					}
					return a.Requeue(ctx, filter, again, progress...)
				})
		}),
	}
	choice.addTo(cmd)
	nameVar(cmd.Flags(), &through, "through", `outbox that publishes the messages of inboxes again, "outbox" unless set`)
	againVar(cmd, &again)
	return cmd
}

// sayBehind says after how many messages a letter comes, before it is requeued. An error is that of
// the action, too.
func (s *session) sayBehind(ctx context.Context, a *admin.Admin, id int64) {
	if text := behind(ctx, a, id); text != "" {
		s.progress("dead letter %d goes behind %s", id, text)
	}
}

// behind says after how many messages of its key a letter comes, and nothing if no one waits.
func behind(ctx context.Context, a *admin.Admin, id int64) string {
	keys, err := a.StuckKeys(ctx, admin.Filter{ID: id})
	if err != nil || len(keys) == 0 {
		return ""
	}
	text := count(1+keys[0].Behind, "message") + " of its key"
	if keys[0].MoreBehind {
		text = "at least " + text
	}
	return text
}

const againHelp = `

Other consumers recognise such a message by their claims. These may have ended if
that of the letter has, or if it died a day or more after its first failure, as
when it was requeued and died again: --older-than-claims requeues such a letter.`

// againVar adds the flags that say what is not known of the messages of inboxes.
func againVar(cmd *cobra.Command, again *admin.Again) {
	nameVar(cmd.Flags(), &again.Topic, "to-topic", "topic on which messages of inboxes are published, instead of the one on which they came")
	cmd.Flags().BoolVar(&again.OlderThanClaims, "older-than-claims", false, "also messages of inboxes that other consumers, which have handled them, handle again")
}

func (p *program) resolveCommand() *cobra.Command {
	var choice letterChoice
	var reason string
	cmd := &cobra.Command{
		Use: "resolve [ID...] --reason TEXT", Short: "Mark dead letters as dealt with",
		Long: `Mark dead letters as dealt with, and keep them. A resolved letter cannot be
requeued.` + chooseHelp,
		RunE: p.on(func(s *session, args []string) error {
			if reason == "" {
				return usagef("--reason is missing: say why, which is kept with the letter")
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			question := func(n string) string { return "Resolve " + n + ", which rules out requeueing?" }
			return s.actOnLetters(a, args, choice, action{name: "resolve", done: "resolved", noun: "dead letter"}, question,
				func(ctx context.Context, filter admin.Filter, progress ...func(admin.Progress)) (int, error) {
					return a.Resolve(ctx, filter, reason, progress...)
				})
		}),
	}
	choice.addTo(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, which is kept with the letter")
	return cmd
}

func (p *program) deleteCommand() *cobra.Command {
	var choice letterChoice
	cmd := &cobra.Command{
		Use: "delete [ID...]", Short: "Delete dead letters with their payloads",
		Long: `Delete dead letters with their payloads. By id, resolved letters can be deleted,
too; filters choose only letters that are not resolved.` + chooseHelp,
		RunE: p.on(func(s *session, args []string) error {
			a, err := s.admin("")
			if err != nil {
				return err
			}
			question := func(n string) string { return "Delete " + n + " for ever?" }
			return s.actOnLetters(a, args, choice, action{name: "delete", done: "deleted", noun: "dead letter"}, question, a.Delete)
		}),
	}
	choice.addTo(cmd)
	return cmd
}

// actOnLetters asks the question, if there is one, and then acts on the letters that are named or
// chosen.
func (s *session) actOnLetters(
	a *admin.Admin, args []string, choice letterChoice, what action, question func(letters string) string,
	act func(ctx context.Context, filter admin.Filter, progress ...func(admin.Progress)) (int, error),
) error {
	ctx := s.cmd.Context()
	if err := choice.check(args); err != nil {
		return err
	}
	ids, err := idsOf(args)
	slices.Sort(ids) // the order in which they died
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		if question != nil {
			err = s.confirm(question(count(len(ids), "dead letter")))
		}
		if err != nil {
			return err
		}
		return s.each(what, given(ids), func(ctx context.Context, id int64) error {
			_, err := act(ctx, admin.Filter{ID: id})
			return err
		})
	}
	filter, err := s.boundedFilter(ctx, choice.letterFlags)
	if err != nil {
		return err
	}
	filter.All = choice.all
	if !s.yes {
		found, err := countLetters(ctx, a, filter)
		if err != nil {
			return err
		}
		if found.n == 0 {
			return s.each(what, given(nil), nil)
		}
		if err := s.confirm(found.question(question, "dead letter"), found.chosen(choice.describe())); err != nil {
			return err
		}
	}
	return s.all(what, func(ctx context.Context, progress func(admin.Progress)) (int, error) {
		return act(ctx, filter, progress)
	})
}

// boundedFilter leaves out letters that die from now on: a message that is requeued and fails again
// would be requeued for ever.
func (s *session) boundedFilter(ctx context.Context, flags letterFlags) (admin.Filter, error) {
	filter, err := s.letterFilter(ctx, flags)
	if err != nil {
		return filter, err
	}
	return s.until(ctx, filter)
}

// until leaves out what is written, done or dead after now, and so after a question.
func (s *session) until(ctx context.Context, filter admin.Filter) (admin.Filter, error) {
	now, err := s.now(ctx)
	if now = now.Add(time.Microsecond); filter.Until.IsZero() || filter.Until.After(now) {
		filter.Until = now
	}
	return filter, err
}

// countLetters counts the letters that match, for a question.
func countLetters(ctx context.Context, a *admin.Admin, filter admin.Filter) (found matches, err error) {
	filter.Limit = mostCounted(filter.Limit)
	for letter, err := range letters(ctx, a, filter) {
		if err != nil {
			return matches{}, err
		}
		found.add(func() string {
			return fmt.Sprintf("%d  %s  topic %s  key %s  %s", letter.ID, originOf(letter.Consumer, letter.Target), nameCell(letter.Topic), nameCell(letter.Key), short(letter.Error))
		})
	}
	return found, nil
}
