package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// receiptRecord is what is known about one consumer of a message.
type receiptRecord struct {
	Topic           string    `json:"topic"`
	MessageID       string    `json:"message_id"`
	MessageIDBase64 []byte    `json:"message_id_base64,omitempty"` // set if the id is not UTF-8
	Consumer        string    `json:"consumer"`
	Status          string    `json:"status"`
	SentAt          time.Time `json:"sent_at,omitzero"`
	DueAt           time.Time `json:"due_at,omitzero"`
	HandledAt       time.Time `json:"handled_at,omitzero"`
	ReceivedAt      time.Time `json:"received_at,omitzero"`
}

func (p *program) receiptsCommand() *cobra.Command {
	return group("receipts", "See which consumers have handled which messages", `See which consumers have handled which messages of this producer. Consumers send
receipts, and a receiver stores them here for a while: see docs/receipts.md.

STATUS is AWAITED (it has not come), MISSING (it has not come in time, which was
counted and reported) or RECEIVED (the consumer has handled the message). HANDLED
is by the clock of the consumer.`,
		p.receiptsShowCommand(), p.receiptsMissingCommand())
}

func (p *program) receiptsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show MESSAGE-ID", Short: "Show which consumers have handled a message",
		Long: `Show which consumers have handled a message, and which receipts are awaited. The
id is the UUID that the producer gave the message. A consumer that nothing awaits
has no SENT, and one that has sent no receipt and is not awaited has no line.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			id, err := nameOf(args[0])
			if err != nil {
				return err
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			if id == "" {
				return usagef("the id of the message is empty")
			}
			receipts, _, err := a.Receipts(s.cmd.Context(), admin.Filter{MessageID: id})
			if err != nil {
				return err
			}
			if err := s.listReceipts(receipts); err != nil {
				return err
			}
			if len(receipts) == 0 {
				s.progress("No receipt of this message is stored or awaited: it may be older than the receiver keeps receipts, or of another producer.")
			}
			return nil
		}),
	}
}

// missingFlags choose receipts that have not come.
type missingFlags struct {
	filter    admin.Filter
	olderThan string
	after     string
}

func (p *program) receiptsMissingCommand() *cobra.Command {
	var flags missingFlags
	cmd := &cobra.Command{
		Use: "missing", Short: "List the receipts that have not come",
		Long: `List the receipts that have not come in the time that the producer has set: first
those that were reported, then those that are about to be, each in the order of
their due times. With --older-than, list all receipts of messages that were sent
longer ago than that and have not come, also those that are not due yet.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error { return s.listMissing(flags) }),
	}
	f := cmd.Flags()
	nameVar(f, &flags.filter.Topic, "topic", "only messages of this topic")
	nameVar(f, &flags.filter.Consumer, "consumer", "only receipts of this consumer")
	f.StringVar(&flags.olderThan, "older-than", "", "only messages that were sent longer ago, such as 5m")
	f.StringVar(&flags.after, "after", "", "cursor of the page before")
	f.IntVar(&flags.filter.Limit, "limit", 100, "largest number of receipts, up to 1000")
	return cmd
}

func (s *session) listMissing(flags missingFlags) error {
	filter := flags.filter
	if filter.Limit < 1 || filter.Limit > pageLimit {
		return usagef("--limit: %d is not between 1 and %d: use a number in this range", filter.Limit, pageLimit)
	}
	if flags.olderThan != "" {
		age, err := parseDuration(flags.olderThan)
		if err != nil {
			return usagef("--older-than: %.30q: %s", flags.olderThan, err)
		}
		filter.OlderThan = max(age, time.Nanosecond) // 0 would leave out those that are not due
	}
	filter.After = flags.after
	a, err := s.admin("")
	if err != nil {
		return err
	}
	receipts, next, err := a.Receipts(s.cmd.Context(), filter)
	if err != nil {
		return err
	}
	if err := s.listReceipts(receipts); err != nil {
		return err
	}
	if next != "" {
		s.progress("There may be more: --after %s", next)
	}
	return nil
}

func (s *session) listReceipts(receipts []admin.Receipt) error {
	list := s.list("TOPIC", "MESSAGE ID", "CONSUMER", "STATUS", "SENT", "DUE", "HANDLED", "RECEIVED")
	for _, r := range receipts {
		record := receiptRecord{
			r.Topic, r.MessageID, binary(r.MessageID), r.Consumer, r.Status,
			utc(r.SentAt), utc(r.DueAt), utc(r.HandledAt), utc(r.ReceivedAt),
		}
		err := list.add(record, nameCell(r.Topic), nameCell(r.MessageID), nameCell(r.Consumer), record.Status,
			moment(r.SentAt), moment(r.DueAt), moment(r.HandledAt), moment(r.ReceivedAt))
		if err != nil {
			return err
		}
	}
	return list.end()
}
