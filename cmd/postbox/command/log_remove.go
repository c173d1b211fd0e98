package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

func (p *program) logRemoveCommand() *cobra.Command {
	var flags logFlags
	var force bool
	cmd := &cobra.Command{
		Use: "remove", Short: "Remove the publication and the slot",
		Long: `Remove the publication, and with --without-rows the permanent slot. Run it with the
roles of "postbox log setup".

With --without-rows, publishers with Log fail from then on. So stop them first,
and stop the forwarders a few seconds later. The command fails while a process
reads the log, and while messages wait in it: with the slot they would be lost.
It also fails if the slot was lost and "postbox log accept-loss" has not been run.
It waits for all transactions that are open on the server, since they may have
published, and says after three seconds for which process it waits.
With --force it ends the connection of that process and removes the slot all the
same, and the messages are lost. Then it waits only for transactions that have
published, up to PostgreSQL 17.

Without --without-rows nothing can be lost: forwarders that read the log poll
from then on. The command fails while one reads, unless --force is given.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onLog(func(s *session, ctx context.Context) error {
			if flags.withoutRows {
				return s.removeSlot(ctx, flags, force)
			}
			return s.removePublication(ctx, flags, force)
		}),
	}
	flags.addTo(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "also while a process reads, and with messages that wait in the log or were lost there, which are given up")
	return cmd
}

func (s *session) removePublication(ctx context.Context, flags logFlags, force bool) error {
	status, err := pgtail.Inspect(ctx, s.database, pgtail.Config{Publication: flags.publication})
	if err != nil {
		return err
	}
	if status.Slot.Active && !force {
		return fmt.Errorf("%s reads the log: stop the forwarders with a pgtail.Tail first, or add --force, and they will poll", readerText(status.Slot))
	}
	if err := s.confirm(fmt.Sprintf("Remove the tables from the publication %s?", status.Publication)); err != nil {
		return err
	}
	if err := pgtail.Remove(ctx, s.database, flags.publication); err != nil {
		return err
	}
	return s.one(logRecord{Action: "remove"}, fmt.Sprintf("The publication %s is removed, or does not include the tables any more.\n", status.Publication))
}

func (s *session) removeSlot(ctx context.Context, flags logFlags, force bool) error {
	status, err := pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{})
	if err != nil {
		return err
	}
	slot, remove := status.Slot, pgtail.RemoveOutbox
	if !slot.Exists && !status.SetUp && !status.Published {
		return s.one(logRecord{Action: "remove"}, fmt.Sprintf("There is no slot %s and no publication of this name, so there was nothing to remove.\n", slot.Name))
	}
	question := fmt.Sprintf("Remove the slot %s? Publishers with Log fail from then on.", slot.Name)
	if force {
		remove = pgtail.DiscardOutbox
		question += fmt.Sprintf(" The messages in %s of log that was not confirmed are lost.", byteText(slot.Unread))
	}
	if slot.Active && !slot.Incomplete && !force {
		return fmt.Errorf("%s reads the log: stop the publishers, and the forwarders when they have read everything; --force removes the slot now, and loses messages", readerText(slot))
	}
	if err := s.confirm(question); err != nil {
		return err
	}
	if err := remove(ctx, s.database, s.logOutbox(flags)); err != nil {
		if !force {
			err = fmt.Errorf("%w; --force removes the slot now, and loses messages that were not read", err)
		}
		return err
	}
	return s.one(logRecord{Action: "remove", Slot: slot.Name}, fmt.Sprintf("The slot %s and its publication are removed.\n", slot.Name))
}
