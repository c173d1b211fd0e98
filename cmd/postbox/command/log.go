package command

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func (p *program) logCommand() *cobra.Command {
	cmd := group("log", "Set up, check and remove what reading the log of PostgreSQL needs", `Set up, check and remove what forwarders need to read the log of PostgreSQL.
docs/log-tailing.md explains it, and docs/security.md has the rights of each role.

There is a publication, and each process that reads makes a slot that ends with
it. All outboxes in the same tables share both. --log-dsn is the address that the
forwarders have in the configuration of pgtail.`,
		p.logSetupCommand(), p.logCheckCommand(), p.logRemoveCommand())
	cmd.PersistentFlags().StringVar(&p.settings.logDSN, "log-dsn", "", "address of the role that reads the log (POSTBOX_LOG_DSN)")
	return cmd
}

func addPublicationTo(cmd *cobra.Command, publication *string) {
	cmd.Flags().StringVar(publication, "publication", "", `name of the publication, as in pgtail.Config (default "postbox_tail")`)
}

// onLog is [program.on] for commands that only PostgreSQL has.
func (p *program) onLog(run func(s *session, ctx context.Context) error) func(*cobra.Command, []string) error {
	return p.on(func(s *session, _ []string) error {
		if can := s.statements.Kind.Can(); !can.Tails {
			return usagef("the log of %s cannot be read: these commands are for PostgreSQL", can.Name)
		}
		ctx := s.cmd.Context()
		if s.actor != "" {
			ctx = admin.ContextWithActor(ctx, s.actor)
		}
		return run(s, ctx)
	})
}

func (p *program) logSetupCommand() *cobra.Command {
	var publication string
	cmd := &cobra.Command{
		Use: "setup", Short: "Make the publication, and say what is missing",
		Long: `Make the publication, and say what the server and the roles lack, with the
statement or the setting for each. Run it after "postbox migrate up", as the owner
of the tables, with CREATE on the database. What is there already is left as it
is, so the command can be run at each deployment.

The output is that of "postbox log check". The exit code is 0 if forwarders can
read the log, and 3 if something is missing.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error { return s.setUpLog(ctx, publication) }),
	}
	addPublicationTo(cmd, &publication)
	return cmd
}

func (s *session) setUpLog(ctx context.Context, publication string) error {
	made := pgtail.Setup(ctx, s.database, publication)
	status, err := pgtail.Inspect(ctx, s.database, pgtail.Config{DSN: s.logDSN, Publication: publication})
	if err != nil {
		return cmp.Or(made, err)
	}
	missing, err := s.listLog(status)
	switch {
	case err != nil:
		return err
	case made != nil && missing > 0: // the list says what to do
		return foundf("the log is not set up: %w", made)
	case made != nil:
		return made
	case missing > 0:
		return foundf("%s found", count(missing, "problem"))
	}
	return nil
}
