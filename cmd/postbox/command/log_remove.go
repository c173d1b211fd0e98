package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func (p *program) logRemoveCommand() *cobra.Command {
	var publication string
	var force bool
	cmd := &cobra.Command{
		Use: "remove", Short: "Remove the publication",
		Long: `Remove the publication. Run it with the role of "postbox log setup".

Nothing can be lost: forwarders that read the log poll from then on. The command
fails while one reads, unless --force is given.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error { return s.removePublication(ctx, publication, force) }),
	}
	addPublicationTo(cmd, &publication)
	cmd.Flags().BoolVar(&force, "force", false, "also while a process reads")
	return cmd
}

// logRecord says what was done.
type logRecord struct {
	Action string `json:"action"`
}

func (s *session) removePublication(ctx context.Context, publication string, force bool) error {
	status, err := pgtail.Inspect(ctx, s.database, pgtail.Config{Publication: publication})
	if err != nil {
		return err
	}
	if status.Slot.Active && !force {
		return fmt.Errorf("%s reads the log: stop the forwarders that read it first, or add --force, and they will poll", readerText(status.Slot))
	}
	if err := s.confirm(fmt.Sprintf("Remove the tables from the publication %s?", status.Publication)); err != nil {
		return err
	}
	if err := pgtail.Remove(ctx, s.database, publication); err != nil {
		return err
	}
	return s.one(logRecord{"remove"}, fmt.Sprintf("The publication %s is removed, or does not include the tables any more.\n", status.Publication))
}
