package command

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// letterRecord is a dead letter.
type letterRecord struct {
	ID        int64        `json:"id"`
	Target    admin.Target `json:"target,omitzero"`
	Consumer  string       `json:"consumer,omitempty"`
	Topic     string       `json:"topic"`
	MessageID string       `json:"message_id"`
	// MessageIDBase64 and KeyBase64 are set if the value is not UTF-8.
	MessageIDBase64 []byte `json:"message_id_base64,omitempty"`
	// SourceTopic and UUID are those with which the message of an inbox is published again. Lists
	// do not have them.
	SourceTopic string    `json:"source_topic,omitempty"`
	UUID        string    `json:"uuid,omitempty"`
	Key         string    `json:"key,omitempty"`
	KeyBase64   []byte    `json:"key_base64,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	DiedAt      time.Time `json:"died_at"`
	Attempts    int       `json:"attempts"`
	Cause       string    `json:"cause"`
	Error       string    `json:"error"`
	ResolvedAt  time.Time `json:"resolved_at,omitzero"`
	Resolution  string    `json:"resolution,omitempty"`
	Size        int       `json:"size"`
	*contentRecord
}

func letterRecordOf(l admin.DeadLetter) letterRecord {
	record := letterRecord{
		ID: l.ID, Target: l.Target, Consumer: l.Consumer, Topic: l.Topic, MessageID: l.MessageID, MessageIDBase64: binary(l.MessageID), SourceTopic: l.SourceTopic, UUID: l.UUID, Key: l.Key, KeyBase64: binary(l.Key),
		CreatedAt: utc(l.CreatedAt), DiedAt: utc(l.DiedAt), Attempts: l.Attempts, Cause: l.Cause, Error: l.Error,
		ResolvedAt: utc(l.ResolvedAt), Resolution: l.Resolution, Size: l.Size,
	}
	return record
}

func (p *program) deadCommand() *cobra.Command {
	return group("dead", "Show dead letters, and requeue, resolve, edit or delete them", `Show dead letters, and requeue, resolve, edit or delete them.

The commands see the dead letters of all outboxes, queues and inboxes with the
same tables.`,
		p.deadListCommand(), p.groupsCommand(), p.deadShowCommand(), p.requeueCommand(), p.editCommand(), p.resolveCommand(), p.deleteCommand())
}

// letterFlags choose dead letters.
type letterFlags struct {
	target                     targetFlags
	topic, consumer, messageID string
	key, errorText, cause      string
	like                       int64
	minAttempts, maxAttempts   int
	diedAfter, diedBefore      string
	limit                      int
}

func (f *letterFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.target.addFilterTo(cmd)
	nameVar(flags, &f.topic, "topic", "only dead letters with this topic")
	nameVar(flags, &f.consumer, "consumer", "only dead letters of this consumer of an inbox")
	nameVar(flags, &f.messageID, "message-id", "only dead letters of the message with this id of Watermill")
	nameVar(flags, &f.key, "key", "only dead letters with this ordering key")
	flags.StringVar(&f.errorText, "error", "", "only dead letters whose error has this text in it, with the same capitals")
	flags.Int64Var(&f.like, "like", 0, "only dead letters of the group of the one with this id: of the same outbox, queue or consumer, with the same topic, and with such an error")
	flags.StringVar(&f.cause, "cause", "", "only dead letters that died for this reason: "+strings.Join(causeWords, ", "))
	flags.IntVar(&f.minAttempts, "min-attempts", 0, "only dead letters with this number of attempts or more")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "only dead letters with this number of attempts or fewer")
	completes(cmd, "cause", causeWords...)
	flags.StringVar(&f.diedAfter, "died-after", "", "only letters that died since then, as RFC 3339, or as a duration before now")
	flags.StringVar(&f.diedBefore, "died-before", "", "only letters that died before then")
}

var causeWords = []string{
	"attempts", "permanent", "crash", "unreadable", "operator", "unknown",
}

// described names the flags that narrow the choice, for a question.
func (f *letterFlags) described() (parts []string) {
	for _, flag := range []struct{ name, value string }{
		{"outbox", f.target.outbox},
		{"queue", f.target.queue},
		{"topic", f.topic},
		{"consumer", f.consumer},
		{"message-id", f.messageID},
		{"key", f.key},
		{"error", f.errorText},
		{"cause", f.cause},
		{"died-after", f.diedAfter},
		{"died-before", f.diedBefore},
	} {
		if flag.value != "" {
			parts = append(parts, fmt.Sprintf("--%s %q", flag.name, flag.value))
		}
	}
	for _, flag := range []struct {
		name string
		n    int64
	}{{"like", f.like}, {"min-attempts", int64(f.minAttempts)}, {"max-attempts", int64(f.maxAttempts)}} {
		if flag.n != 0 {
			parts = append(parts, fmt.Sprintf("--%s %d", flag.name, flag.n))
		}
	}
	return parts
}

// chosen says whether a flag narrows the choice.
func (f *letterFlags) chosen() bool { return len(f.described()) > 0 }

func (s *session) letterFilter(ctx context.Context, f letterFlags) (admin.Filter, error) {
	if f.limit < 0 {
		return admin.Filter{}, usagef("--limit: %d is negative: use a positive number, or 0 for all", f.limit)
	}
	after, err := s.past(ctx, "died-after", f.diedAfter)
	if err != nil {
		return admin.Filter{}, err
	}
	before, err := s.past(ctx, "died-before", f.diedBefore)
	if err != nil {
		return admin.Filter{}, err
	}
	filter := admin.Filter{
		Topic: f.topic, Consumer: f.consumer, MessageID: f.messageID, Key: f.key, ErrorText: f.errorText, Cause: f.cause,
		MinAttempts: f.minAttempts, MaxAttempts: f.maxAttempts, From: after, Until: before, Limit: f.limit,
	}
	if f.target.any() {
		filter.Target = f.target.one()
	}
	if f.like != 0 {
		if filter, err = s.like(ctx, f.like, filter); err != nil {
			return filter, err
		}
	}
	return filter, nil
}

// like narrows a filter to the group of a letter.
func (s *session) like(ctx context.Context, id int64, filter admin.Filter) (admin.Filter, error) {
	a, err := s.admin("")
	if err != nil {
		return filter, err
	}
	letter, err := a.DeadLetter(ctx, id)
	if err != nil {
		return filter, err
	}
	if (filter.Consumer != "" && filter.Consumer != letter.Consumer) || (filter.Topic != "" && filter.Topic != letter.Topic) ||
		(filter.Target != admin.Target{} && filter.Target != letter.Target) {
		return filter, usagef("--like: dead letter %d is of %s with the topic %q, and another flag asks for something else", id,
			originOf(letter.Consumer, letter.Target), letter.Topic)
	}
	filter.Consumer, filter.Target, filter.Topic, filter.Shape = letter.Consumer, letter.Target, letter.Topic, letter.Shape
	return filter, nil
}

// letters goes through the letters that match a filter, page by page, up to its limit; 0 is all.
func letters(ctx context.Context, a *admin.Admin, filter admin.Filter) iter.Seq2[admin.DeadLetter, error] {
	return func(yield func(admin.DeadLetter, error) bool) {
		left := filter.Limit
		for all := left == 0; all || left > 0; {
			filter.Limit = pageLimit
			if !all {
				filter.Limit = min(pageLimit, left)
			}
			page, next, err := a.DeadLetters(ctx, filter)
			if err != nil {
				yield(admin.DeadLetter{}, err)
				return
			}
			for _, letter := range page {
				if !yield(letter, nil) {
					return
				}
			}
			if filter.After = next; next == "" {
				return
			}
			left -= len(page)
		}
	}
}

func (p *program) deadListCommand() *cobra.Command {
	var flags letterFlags
	var after int64
	var resolved string
	var newest bool
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters",
		Long: `List dead letters, in the order in which they died, or with --newest-first the
other way round. Payloads are not shown: see "postbox dead show".

OF is the outbox or queue in the database that the message was in, or the
consumer whose inbox got it from a broker.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error {
			filter, err := s.letterFilter(s.cmd.Context(), flags)
			if err != nil {
				return err
			}
			if err := checkResolved(resolved); err != nil {
				return err
			}
			filter.Resolved, filter.NewestFirst = resolved, newest
			if after > 0 {
				filter.After = strconv.FormatInt(after, 10)
			}
			return s.listLetters(filter)
		}),
	}
	flags.addTo(cmd)
	cmd.Flags().StringVar(&resolved, "resolved", "no", "whether an operator has resolved the letters: no, yes or any")
	cmd.Flags().BoolVar(&newest, "newest-first", false, "begin with the letter that died last")
	cmd.Flags().Int64Var(&after, "after", 0, "id of the last letter of the page before")
	cmd.Flags().IntVar(&flags.limit, "limit", 100, "largest number of letters, 0 for all")
	completes(cmd, "resolved", "no", "yes", "any")
	return cmd
}

func checkResolved(text string) error {
	if text != "no" && text != "yes" && text != "any" {
		return usagef("--resolved: %.30q is not one of no, yes and any", text)
	}
	return nil
}

func (s *session) listLetters(filter admin.Filter) error {
	a, err := s.admin("")
	if err != nil {
		return err
	}
	list := s.list("ID", "OF", "TOPIC", "MESSAGE ID", "KEY", "ATTEMPTS", "CAUSE", "DIED", "ERROR")
	last := int64(0)
	for letter, err := range letters(s.cmd.Context(), a, filter) {
		if err != nil {
			return err
		}
		last = letter.ID
		err := list.add(letterRecordOf(letter), number(letter.ID), originOf(letter.Consumer, letter.Target), nameCell(letter.Topic), nameCell(letter.MessageID), nameCell(letter.Key),
			number(letter.Attempts), letter.Cause, moment(letter.DiedAt), short(letter.Error))
		if err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if filter.Limit > 0 && list.rows == filter.Limit {
		s.progress("There may be more: --after %d", last)
	}
	return nil
}

// originOf says for people where a letter comes from, in the words of the flags that choose it.
func originOf(consumer string, target admin.Target) string {
	if consumer != "" {
		return "consumer " + nameCell(consumer)
	}
	of := target
	return of.Kind + " " + nameCell(of.Name)
}

func (p *program) deadShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a dead letter with payload, metadata and failures",
		Long: `Show a dead letter with its payload, metadata and failures. ID is the number in
the column ID of "postbox dead list".`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: p.on(func(s *session, args []string) error {
			ids, a, err := s.named(args)
			if err != nil {
				return err
			}
			letter, err := a.DeadLetter(s.cmd.Context(), ids[0])
			if err != nil {
				return err
			}
			record := letterRecordOf(*letter)
			record.contentRecord = contentOf(letter.Payload, letter.Metadata, letter.Failures)
			source, uuid := "", ""
			if letter.Consumer != "" {
				source, uuid = nameCell(letter.SourceTopic), nameCell(letter.UUID)
			}
			return s.one(record, fields(
				field{"ID", number(letter.ID)}, field{"Of", originOf(letter.Consumer, letter.Target)}, field{"Topic", nameCell(letter.Topic)}, field{"Message ID", nameCell(letter.MessageID)},
				field{"Source topic", source}, field{"UUID", uuid},
				field{"Key", nameCell(letter.Key)}, field{"Attempts", number(letter.Attempts)}, field{"Cause", letter.Cause}, field{"Created", moment(letter.CreatedAt)},
				field{"Died", moment(letter.DiedAt)}, field{"Resolved", moment(letter.ResolvedAt)}, field{"Resolution", cell(letter.Resolution)},
				field{"Bytes", number(letter.Size)},
			)+"\nError:\n"+block(letter.Error)+"\n"+record.text())
		}),
	}
}
