package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// auditFlags choose actions.
type auditFlags struct {
	target       targetFlags
	by, action   string
	since, until string
	before       string
	limit        int
}

func (p *program) auditCommand() *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use: "audit", Short: "List what operators did, the latest first",
		Long: `List what operators did, the latest first: who, when, what, and to how many
messages or dead letters. An action on one that failed is not listed. Actions are
kept for a year: "postbox migrate up" deletes older ones.

--actor names who acts now, and --by chooses actions by who acted.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error { return s.listAudit(flags) }),
	}
	flags.target.addFilterWithInboxTo(cmd)
	nameVar(cmd.Flags(), &flags.by, "by", "only actions of this operator")
	cmd.Flags().StringVar(&flags.action, "action", "", `only actions of this name, such as "requeue" or "pause key"`)
	cmd.Flags().StringVar(&flags.since, "since", "", "only actions since then, as RFC 3339, or as a duration before now")
	cmd.Flags().StringVar(&flags.until, "until", "", "only actions before then")
	cmd.Flags().StringVar(&flags.before, "before", "", "cursor of the page before")
	cmd.Flags().IntVar(&flags.limit, "limit", 100, "largest number of actions, up to 1000")
	return cmd
}

func (s *session) listAudit(flags auditFlags) error {
	if flags.limit < 1 || flags.limit > pageLimit {
		return usagef("--limit: %d is not between 1 and %d: use a number in this range", flags.limit, pageLimit)
	}
	ctx := s.cmd.Context()
	from, err := s.past(ctx, "since", flags.since)
	if err != nil {
		return err
	}
	until, err := s.past(ctx, "until", flags.until)
	if err != nil {
		return err
	}
	filter := admin.Filter{Actor: flags.by, Action: flags.action, From: from, Until: until, After: flags.before, Limit: flags.limit}
	if flags.target.any() {
		filter.Target = flags.target.one()
	}
	a, err := s.admin("")
	if err != nil {
		return err
	}
	entries, next, err := a.Audit(ctx, filter)
	for err == nil && next != "" && len(entries) < flags.limit {
		var more []admin.AuditEntry
		filter.After, filter.Limit = next, flags.limit-len(entries)
		more, next, err = a.Audit(ctx, filter)
		entries = append(entries, more...)
	}
	if err != nil {
		return err
	}
	list := s.list("ID", "AT", "ACTOR", "ACTION", "TARGET", "SUBJECT OR FILTER", "CHANGED", "NOTE")
	for _, e := range entries {
		e.At = utc(e.At)
		target, subject := "-", e.Subject
		if e.Target != (admin.Target{}) {
			target = targetCell(e.Target)
		}
		if subject == "" {
			subject = e.Filter
		}
		if err := list.add(e, number(e.ID), moment(e.At), nameCell(e.Actor), cell(e.Action), target, short(subject), number(e.Affected), short(e.Note)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if next != "" {
		s.progress("There may be more: --before %s", next)
	}
	return nil
}
