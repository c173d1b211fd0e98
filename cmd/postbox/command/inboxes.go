package command

import (
	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// inboxRecord is the state of the inboxes of a consumer.
type inboxRecord struct {
	admin.Target
	Dead     int            `json:"dead"`
	Done     int            `json:"done"`
	Settings settingsRecord `json:"settings,omitzero"`
}

func inboxRecordOf(info admin.QueueInfo) inboxRecord {
	return inboxRecord{
		Target: info.Target, Dead: info.Dead, Done: info.Done,
		Settings: settingsRecordOf(info.Settings),
	}
}

func (p *program) inboxesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inboxes", Short: "Show the inboxes with dead letters or a history",
		Long: `Show the consumers whose inboxes have dead letters that no operator has
resolved, or have ever kept a history of the messages that they have handled.

DONE messages are those in the history: "postbox messages list --inbox --done"
lists them. HISTORY is how long they are kept if an operator has changed that,
and else "default", which each process configures. Numbers are as "postbox
queues" has them.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error { return s.listInboxes() }),
	}
}

func (s *session) listInboxes() error {
	_, inboxes, err := s.states(s.cmd.Context())
	if err != nil {
		return err
	}
	list := s.list("INBOX", "DEAD", "DONE", "HISTORY")
	for _, info := range inboxes {
		record := inboxRecordOf(info)
		err := list.add(record, targetCell(record.Target), amount(info.Dead), amount(info.Done),
			orDefault(record.Settings.History))
		if err != nil {
			return err
		}
	}
	return list.end()
}
