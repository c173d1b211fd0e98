package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// messageRecord is a message of an outbox or a queue.
type messageRecord struct {
	ID        int64  `json:"id"`
	Status    string `json:"status"`
	Topic     string `json:"topic"`
	MessageID string `json:"message_id"`
	// MessageIDBase64 and KeyBase64 are set if the value is not UTF-8.
	MessageIDBase64 []byte    `json:"message_id_base64,omitempty"`
	Key             string    `json:"key,omitempty"`
	KeyBase64       []byte    `json:"key_base64,omitempty"`
	UniqueKey       string    `json:"unique_key,omitempty"`
	UniqueKeyBase64 []byte    `json:"unique_key_base64,omitempty"`
	Attempts        int       `json:"attempts"`
	CreatedAt       time.Time `json:"created_at"`
	DueAt           time.Time `json:"due_at,omitzero"`
	DoneAt          time.Time `json:"done_at,omitzero"`
	Size            int       `json:"size"`
	Process         string    `json:"process,omitempty"`
	Took            float64   `json:"took_seconds,omitempty"`
	Omitted         int       `json:"omitted,omitempty"` // bytes that the history has not kept
	Cursor          string    `json:"cursor,omitempty"`
	*contentRecord
}

func messageRecordOf(m admin.Message) messageRecord {
	return messageRecord{
		ID: m.ID, Status: string(m.Status), Topic: m.Topic, MessageID: m.MessageID, MessageIDBase64: binary(m.MessageID), Key: m.Key, KeyBase64: binary(m.Key), Attempts: m.Attempts,
		UniqueKey: m.UniqueKey, UniqueKeyBase64: binary(m.UniqueKey),
		CreatedAt: utc(m.CreatedAt), DueAt: utc(m.DueAt), DoneAt: utc(m.DoneAt), Process: m.Process, Took: m.Took.Seconds(), Size: m.Size, Omitted: m.Omitted, Cursor: m.Cursor,
	}
}

func (p *program) messagesCommand() *cobra.Command {
	return group("messages", "Show pending and done messages, and act on pending ones", `Show pending and done messages, and act on pending ones.

The messages are those of the outbox "outbox", unless --outbox or --queue names
another one, or --inbox the consumer of an inbox.`,
		p.messagesListCommand(), p.messagesShowCommand(), p.runNowCommand(), p.rescheduleCommand(), p.buryCommand())
}

// messageFlags choose messages of a list.
type messageFlags struct {
	target targetFlags
	messageFilterFlags
	done                  bool
	doneAfter, doneBefore string
	after                 string
	limit                 int
}

func (p *program) messagesListCommand() *cobra.Command {
	var flags messageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List messages",
		Long: `List the pending messages of an outbox or a queue: ready ones first, then
scheduled ones, then failed ones. The ready ones come lane by lane, so the first
one need not be the oldest: --created-before 5m leaves out those of the last five
minutes. With --done, list the history instead, the latest first. An inbox has only a history: with --inbox and --done, list the
messages that its consumer has handled.

STATUS is READY, SCHEDULED (waits for the time that its producer asked for),
RETRYING (failed, and waits for its next attempt), PARKED (has used up its
attempts, and waits for an operator) or DONE.

Payloads are not shown: see "postbox messages show".`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error { return s.listMessages(flags) }),
	}
	flags.target.addWithInboxTo(cmd)
	flags.addTo(cmd)
	f := cmd.Flags()
	f.BoolVar(&flags.done, "done", false, "list the history")
	f.StringVar(&flags.doneAfter, "done-after", "", "with --done: only messages done since then, as RFC 3339, or as a duration before now")
	f.StringVar(&flags.doneBefore, "done-before", "", "with --done: only messages done before then")
	f.StringVar(&flags.after, "after", "", "cursor of the last message of the page before")
	f.IntVar(&flags.limit, "limit", 100, "largest number of messages, 0 for all")
	return cmd
}

func (s *session) listMessages(flags messageFlags) error {
	ctx := s.cmd.Context()
	a, filter, err := s.listFilter(ctx, flags)
	if err != nil {
		return err
	}
	list := s.list("ID", "STATUS", "TOPIC", "MESSAGE ID", "KEY", "ATTEMPTS", "CREATED", "DUE OR DONE", "BYTES")
	next := flags.after
	for left := flags.limit; flags.limit == 0 || left > 0; {
		filter.After, filter.Limit = next, pageLimit
		if flags.limit > 0 {
			filter.Limit = min(filter.Limit, left)
		}
		messages, after, err := a.Messages(ctx, filter)
		if err != nil {
			return err
		}
		for _, m := range messages {
			at := m.DueAt
			if m.Status == admin.Done {
				at = m.DoneAt
			}
			err := list.add(messageRecordOf(m), number(m.ID), string(m.Status), nameCell(m.Topic), nameCell(m.MessageID), nameCell(m.Key),
				number(m.Attempts), moment(m.CreatedAt), moment(at), number(m.Size))
			if err != nil {
				return err
			}
		}
		left -= len(messages)
		if next = after; next == "" {
			break
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if next != "" {
		s.progress("There may be more: --after %s", next)
	}
	if flags.done && list.rows == 0 && flags.after == "" {
		s.notInHistory(flags.target.one())
	}
	return nil
}

// notInHistory says why a history may lack messages: an outbox or a queue keeps none unless it is
// told to.
func (s *session) notInHistory(target admin.Target) {
	s.progress("No such message is in the history of the %s. It has messages that were done while a history was kept: \"postbox set --history\" says for how long.", target)
}

// listFilter reads the flags that choose messages of a list.
func (s *session) listFilter(ctx context.Context, flags messageFlags) (*admin.Admin, admin.Filter, error) {
	a, err := s.admin("")
	if err != nil {
		return nil, admin.Filter{}, err
	}
	if flags.limit < 0 {
		return nil, admin.Filter{}, usagef("--limit: %d is negative: use a positive number, or 0 for all", flags.limit)
	}
	if !flags.done {
		if flags.target.inbox != "" {
			return nil, admin.Filter{}, usagef("--inbox: messages wait for an inbox in the broker, and it keeps only those that it has handled: add --done")
		}
		if flags.doneAfter != "" || flags.doneBefore != "" {
			return nil, admin.Filter{}, usagef("--done-after and --done-before are for --done")
		}
		filter, err := flags.filter(ctx, s, flags.target.one())
		return a, filter, err
	}
	if flags.ofPending() {
		return nil, admin.Filter{}, usagef("--status, --error, --min-attempts, --created-after and --created-before are for pending messages, without --done")
	}
	filter := admin.Filter{Target: flags.target.one(), Status: admin.Done, Topic: flags.topic, Key: flags.key, MessageID: flags.messageID}
	if filter.From, err = s.past(ctx, "done-after", flags.doneAfter); err != nil {
		return nil, filter, err
	}
	filter.Until, err = s.past(ctx, "done-before", flags.doneBefore)
	return a, filter, err
}

func statusOf(text string) (admin.Status, error) {
	switch status := admin.Status(strings.ToUpper(text)); status {
	case "", admin.Ready, admin.Scheduled, admin.Retrying, admin.Parked:
		return status, nil
	case admin.Done:
		return "", usagef("--status: %.30q is not one of ready, scheduled, retrying and parked: \"postbox messages list --done\" lists messages that are done", text)
	default:
		return "", usagef("--status: %.30q is not one of ready, scheduled, retrying and parked", text)
	}
}

func (p *program) messagesShowCommand() *cobra.Command {
	var target targetFlags
	var topic, uniqueKey string
	cmd := &cobra.Command{
		Use: "show [ID]", Short: "Show a message with payload, metadata and failures",
		Long: `Show a message, pending or done, with its payload, metadata and failures. ID is
the number in the column ID of "postbox messages list".

With --unique-key and --topic, show the message of an outbox that waits under that
unique key. The tables have a hash of each unique key. So for an ID, the unique
key is shown only if it is also the ordering key, as it is unless the producer has
set another one.`,
		Args: arguments(cobra.MaximumNArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			m, err := s.shown(target, args, topic, uniqueKey)
			if err != nil {
				return err
			}
			record := messageRecordOf(*m)
			record.contentRecord = contentOf(m.Payload, m.Metadata, m.Failures)
			return s.one(record, fields(
				field{"ID", number(m.ID)}, field{"Status", string(m.Status)}, field{"Topic", nameCell(m.Topic)}, field{"Message ID", nameCell(m.MessageID)},
				field{"Key", nameCell(m.Key)}, field{"Unique key", nameCell(m.UniqueKey)}, field{"Attempts", number(m.Attempts)}, field{"Created", moment(m.CreatedAt)},
				field{"Due", moment(m.DueAt)}, field{"Done", moment(m.DoneAt)}, field{"Took", took(m.Took)}, field{"By process", m.Process}, field{"Bytes", number(m.Size)}, field{"Left out", leftOut(m.Omitted)},
			)+record.text())
		}),
	}
	target.addWithInboxTo(cmd)
	nameVar(cmd.Flags(), &uniqueKey, "unique-key", "the message that waits under this unique key, instead of an ID")
	nameVar(cmd.Flags(), &topic, "topic", "topic of the unique key")
	cmd.MarkFlagsRequiredTogether("unique-key", "topic")
	return cmd
}

// shown reads the message that an id or a unique key names.
func (s *session) shown(target targetFlags, ids []string, topic, uniqueKey string) (*admin.Message, error) {
	switch {
	case uniqueKey == "" && len(ids) == 0:
		return nil, usagef("no message is named: give its ID, or --unique-key and --topic")
	case uniqueKey == "":
		named, a, err := s.named(ids)
		if err != nil {
			return nil, err
		}
		return a.Message(s.cmd.Context(), admin.Filter{Target: target.one(), ID: named[0]})
	case len(ids) > 0:
		return nil, usagef("--unique-key: leave out the ID %s", ids[0])
	}
	a, err := s.admin("")
	if err != nil {
		return nil, err
	}
	return a.Message(s.cmd.Context(), admin.Filter{Target: target.one(), Topic: topic, UniqueKey: uniqueKey})
}

// took says how long a message was handled, and is empty if that is not known.
func took(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(10 * time.Microsecond).String()
}

// leftOut says how much of a message the history has not kept, and is empty if it has kept all.
func leftOut(bytes int) string {
	if bytes == 0 {
		return ""
	}
	return count(bytes, "byte")
}

// pageLimit is the largest number of entries that the package admin lists at a time.
const pageLimit = 1000

// maxYear is the last year of RFC 3339, and so of JSON.
const maxYear = 9999

// utc is a time as JSON can have it. A later time is the end of the last year: the database can
// have any.
func utc(at time.Time) time.Time {
	at = at.UTC()
	switch {
	case at.IsZero(), at.Year() < 1:
		return time.Time{}
	case at.Year() > maxYear:
		return time.Date(maxYear, time.December, 31, 23, 59, 59, 0, time.UTC)
	}
	return at
}
