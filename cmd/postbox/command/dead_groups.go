package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

func (p *program) groupsCommand() *cobra.Command {
	var flags letterFlags
	cmd := &cobra.Command{
		Use: "groups", Short: "Sort dead letters by the way in which they failed",
		Long: `Sort dead letters by the way in which they failed: by outbox, queue or consumer,
by topic, and by the error without ids, long numbers and quoted values. The
largest group comes first. EXAMPLE is the id of the latest letter of the group:
"dead list --like ID" lists the group, and "dead requeue --like ID", "dead
resolve --like ID" and "dead delete --like ID" act on it.

The command takes the latest 10,000 letters that match among the latest 20,000,
and says if there may be more.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error {
			filter, err := s.letterFilter(s.cmd.Context(), flags)
			if err != nil {
				return err
			}
			if flags.limit < 1 || flags.limit > pageLimit {
				return usagef("--limit: %d is not between 1 and %d: use a number in this range", flags.limit, pageLimit)
			}
			return s.listGroups(filter)
		}),
	}
	flags.addTo(cmd)
	cmd.Flags().IntVar(&flags.limit, "limit", 100, "largest number of groups, up to 1000")
	return cmd
}

func (s *session) listGroups(filter admin.Filter) error {
	a, err := s.admin("")
	if err != nil {
		return err
	}
	limit := filter.Limit
	filter.Limit = 0
	groups, capped, err := a.Groups(s.cmd.Context(), filter)
	if err != nil {
		return err
	}
	list := s.list("COUNT", "OF", "TOPIC", "FIRST", "LAST", "EXAMPLE", "ERROR")
	letters := 0
	for i, g := range groups {
		if letters += g.Count; i >= limit {
			continue
		}
		of := originOf(g.Consumer, g.Target)
		g.First, g.Last = utc(g.First), utc(g.Last)
		if err := list.add(g, number(g.Count), of, nameCell(g.Topic), moment(g.First), moment(g.Last), number(g.Example), short(g.Shape)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if more := len(groups) - limit; more > 0 {
		s.progress("%s more: use a higher --limit.", count(more, "group"))
	}
	if capped {
		s.progress("There are more letters: these are the counts of the latest %s.", grouped(letters))
	}
	return nil
}
