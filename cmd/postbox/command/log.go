package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func (p *program) logCommand() *cobra.Command {
	cmd := group("log", "Set up, check and remove what reading the log of PostgreSQL needs", `Set up, check and remove what forwarders need to read the log of PostgreSQL.
docs/log-tailing.md explains the two ways to use it, and docs/security.md has the
rights of each role.

By default the commands are about messages that have rows, which a pgtail.Tail
reads: there is a publication, and each process that reads makes a slot that ends
with it. With --without-rows they are about messages that are in the log alone
(Log in forwarder.PublisherConfig), which a pgtail.Outbox reads: there is a
permanent slot. A permanent slot that is lost is lost messages.

All outboxes in the same tables share the publication and the slot. --log-dsn is
the address that the forwarders have in the configuration of pgtail.`,
		p.logSetupCommand(), p.logCheckCommand(), p.logRemoveCommand(), p.logAcceptLossCommand())
	cmd.PersistentFlags().StringVar(&p.settings.logDSN, "log-dsn", "", "address of the role that reads the log (POSTBOX_LOG_DSN)")
	return cmd
}

// logFlags say which use of the log a command is about.
type logFlags struct {
	withoutRows, noFailover bool
	publication             string
}

func (f *logFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.withoutRows, "without-rows", false, "messages that are in the log alone")
	cmd.Flags().StringVar(&f.publication, "publication", "", `name of the publication for messages that have rows, as in pgtail.Config (default "postbox_tail")`)
	cmd.MarkFlagsMutuallyExclusive("without-rows", "publication")
}

func (f *logFlags) addFailoverTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.noFailover, "no-failover", false, "make a permanent slot that a failover loses; on PostgreSQL 17 and later standbys can keep it otherwise")
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

// inspect looks at the use of the log that the flags name. Whether the role that reads may do so is seen only if its address is given.
func (s *session) inspect(ctx context.Context, flags logFlags) (pgtail.Status, error) {
	if flags.withoutRows {
		return pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{DSN: s.logDSN, NoFailover: flags.noFailover})
	}
	return pgtail.Inspect(ctx, s.database, pgtail.Config{DSN: s.logDSN, Publication: flags.publication})
}

// logOutbox is the configuration for a change. The role of the command makes the slot if no other one is named.
func (s *session) logOutbox(flags logFlags) pgtail.OutboxConfig {
	return pgtail.OutboxConfig{DSN: cmp.Or(s.logDSN, s.address.dsn), NoFailover: flags.noFailover, Waits: func(what string) { s.progress("%s.", what) }}
}

func (p *program) logSetupCommand() *cobra.Command {
	var flags logFlags
	cmd := &cobra.Command{
		Use: "setup", Short: "Make the publication and the slot, and say what is missing",
		Long: `Make the publication, and with --without-rows the permanent slot, and say what
the server and the roles lack, with the statement or the setting for each. Run it
after "postbox migrate up", as the owner of the tables, with CREATE on the
database. With --without-rows the role of --log-dsn makes the slot, and needs
REPLICATION; without --log-dsn that is the role of --dsn. What is there already is
left as it is, so the command can be run at each deployment. It waits for all
transactions that are open on the server before it makes a slot.

On PostgreSQL 17 and later, standbys with sync_replication_slots keep the slot,
unless --no-failover says otherwise.

The output is that of "postbox log check", but it is no problem that no process
reads yet. The exit code is 0 if forwarders can read the log, and 3 if something
is missing.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error { return s.setUpLog(ctx, flags) }),
	}
	flags.addTo(cmd)
	flags.addFailoverTo(cmd)
	return cmd
}

func (s *session) setUpLog(ctx context.Context, flags logFlags) error {
	var made error
	if flags.withoutRows {
		made = pgtail.SetupOutbox(ctx, s.database, s.logOutbox(flags))
		if made != nil && ctx.Err() != nil {
			return s.cutOff(ctx, made)
		}
	} else {
		made = pgtail.Setup(ctx, s.database, flags.publication)
	}
	status, err := s.inspect(ctx, flags)
	if err != nil {
		return cmp.Or(made, err)
	}
	if made == nil && flags.withoutRows && !status.Slot.Active {
		status.Findings = beforeForwarders(status.Findings)
	}
	if err := s.listLog(status, flags); err != nil {
		return err
	}
	missing := logProblems(status, pgtail.AboutReader) // forwarders start later
	switch {
	case made != nil && missing > 0: // the list says what to do
		return foundf("the log is not set up: %w", made)
	case made != nil:
		return made
	case missing > 0:
		return foundf("%s found", count(missing, "problem"))
	}
	return nil
}

const (
	// cutOffPatience is how long an interrupted set-up waits until the server has given the slot up, and cutOffPause the pause between two looks.
	cutOffPatience = 5 * time.Second
	cutOffPause    = 50 * time.Millisecond
)

// slotInMaking returns what to say of the slot if the server still makes it.
func (s *session) slotInMaking(ctx context.Context) (wait pgtail.Finding, ok bool) {
	status, err := pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{})
	if err != nil || !status.Slot.Incomplete {
		return wait, false
	}
	at := slices.IndexFunc(status.Findings, func(f pgtail.Finding) bool { return f.Problem && f.About == pgtail.AboutSlot })
	if at < 0 {
		return wait, false
	}
	return status.Findings[at], true
}

// cutOff waits until the server has heard that a set-up was interrupted: it would go on making the slot for a process that ends before. It returns err, with what to do if the server goes on.
func (s *session) cutOff(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cutOffPatience)
	defer cancel()
	ticker := time.NewTicker(cutOffPause)
	defer ticker.Stop()
	for deadline := time.Now().Add(cutOffPatience); ; <-ticker.C {
		wait, making := s.slotInMaking(ctx)
		switch {
		case !making:
			return fmt.Errorf("%w: run the command again", err)
		case time.Now().After(deadline):
			return fmt.Errorf("%w, and the server goes on: %s. When it has made the slot, publishers with Log can write, and no forwarder can read: %s", err, wait.What, wait.Fix)
		}
	}
}

// beforeForwarders replaces the problem that no process reads messages from a log that was set up: forwarders start later.
func beforeForwarders(findings []pgtail.Finding) []pgtail.Finding {
	findings = slices.DeleteFunc(findings, func(f pgtail.Finding) bool { return f.About == pgtail.AboutReader })
	return append(findings, pgtail.Finding{
		About: pgtail.AboutReader, What: "the log is set up, and no process reads it yet", Fix: "run a forwarder with a pgtail.Outbox in forwarder.Config.Tail",
	})
}

func (p *program) logAcceptLossCommand() *cobra.Command {
	var flags logFlags
	cmd := &cobra.Command{
		Use: "accept-loss", Short: "Let forwarders read again after messages of the log were lost",
		Long: `Let forwarders read again after the permanent slot of the log was lost, or its
publication was dropped or renamed, without which it cannot be read. Forwarders
stop with pgtail.ErrSlotLost then, so that the loss is noticed. Messages that
were written to the log and not stored are lost, and so are those that publishers
write until this command has ended, although they may see no error. So run it
first. It prints from when to when messages may be missing, by the clock of the
server, and the audit log keeps that. Then start the forwarders, find out which
messages of that time are missing, for example from your own tables, and publish
them again. What is published again before this command is lost once more.

The command makes a new slot if there is none that can be used, and drops that of
tables which were there before a restore. It fails if nothing is lost.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error {
			if err := s.confirm("Accept that messages which were in the log alone are lost? Those that are missing must be published again afterwards."); err != nil {
				return err
			}
			loss, err := pgtail.AcceptLoss(ctx, s.database, s.logOutbox(flags))
			if err != nil {
				return err
			}
			return s.one(logRecord{Action: "accept-loss", Since: &loss.Since, Until: &loss.Until, Position: loss.Position}, lossText(loss))
		}),
	}
	flags.addFailoverTo(cmd)
	return cmd
}

// logRecord says what was done.
type logRecord struct {
	Action string `json:"action"`
	Slot   string `json:"slot,omitempty"`
	// Since, Until and Position are what was given up, see [pgtail.Loss].
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Position string     `json:"position,omitempty"`
}

// lossText says what an operator does after a loss was accepted.
func lossText(loss pgtail.Loss) string {
	return fmt.Sprintf(`Given up: %s.
Forwarders can read the log again, from %s on. Those that have ended must be started.
Now find out which messages of that time are missing, and publish them again with their ids. The reader of the log may have lagged, so begin a little earlier.
`, loss, loss.Position)
}
