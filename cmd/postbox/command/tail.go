package command

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

const (
	// tailOverlap is for how long a poll looks back: what is done is seen only after its commit.
	tailOverlap = 5 * time.Second
	// tailLetters is the same for dead letters, as a number of ids.
	tailLetters = 1000
)

// tailRecord is a message that has ended.
type tailRecord struct {
	At        time.Time `json:"at"`
	Outcome   string    `json:"outcome"` // DONE or DEAD
	ID        int64     `json:"id"`      // of the message, or of the dead letter
	Topic     string    `json:"topic"`
	MessageID string    `json:"message_id"`
	Key       string    `json:"key,omitempty"`
	KeyBase64 []byte    `json:"key_base64,omitempty"` // set if the key is not UTF-8
	Attempts  int       `json:"attempts"`
	Error     string    `json:"error,omitempty"`
}

func (p *program) tailCommand() *cobra.Command {
	var target targetFlags
	var topic, since string
	interval := durationFlag{time.Second}
	cmd := &cobra.Command{
		Use: "tail", Short: "Show what is done, if a history is kept, and what dies, live",
		Long: `Show the messages of an outbox or a queue that are done or become dead letters,
or those of an inbox with a history that it has handled or buried, one line for
each, until the command is interrupted. The time is that of the end of the
message, and the number is the id for "postbox messages show" or "postbox dead
show".

Messages that are done are seen only while a history is kept: see "postbox set
--history". Of more than 1000 in one interval only the latest are shown, and a
line on the standard error says so. A message gets its time before its
transaction commits. If that takes so long that a message whose time is more
than 5 s later is shown first, the earlier one is not shown: this can happen
with an inbox that handles messages in a transaction of its caller. The history
has all of them: see "postbox messages list --done". With -o jsonl each line is
a JSON object.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			if s.format == formatJSON {
				return usagef("--output: tail has no end, so use jsonl instead of json")
			}
			if interval.Duration < 100*time.Millisecond {
				return usagef("--interval: use at least 100ms")
			}
			a, err := s.admin("")
			if err != nil {
				return err
			}
			from, err := s.past(s.cmd.Context(), "since", since)
			if err == nil && from.IsZero() {
				from, err = s.now(s.cmd.Context())
			}
			if err != nil {
				return err
			}
			queues, err := a.Queues(s.cmd.Context())
			if err != nil {
				return err
			}
			if slices.ContainsFunc(queues, func(q admin.QueueInfo) bool { return q.Target == target.one() && q.Done == 0 }) {
				s.progress("Its history is empty: unless one is kept, only dead letters are shown. See \"postbox set --history\".")
			}
			t := &tailing{session: s, admin: a, target: target.one(), topic: topic, begin: from, from: from, seen: map[string]time.Time{}}
			return t.follow(interval.Duration)
		}),
	}
	target.addWithInboxTo(cmd)
	nameVar(cmd.Flags(), &topic, "topic", "only messages with this topic")
	cmd.Flags().StringVar(&since, "since", "", "begin with what has ended since then, as RFC 3339, or as a duration before now")
	cmd.Flags().Var(&interval, "interval", "time between two looks")
	return cmd
}

// tailing is a running tail. A look takes two pages, and memory is bounded by what ends within the
// overlap.
type tailing struct {
	*session
	admin       *admin.Admin
	target      admin.Target
	topic       string
	begin, from time.Time
	letters     int64                // ids up to which dead letters were read
	seen        map[string]time.Time // what was printed, with its time
}

// follow looks again and again until the operator stops it.
func (t *tailing) follow(interval time.Duration) error {
	ctx := t.cmd.Context()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := t.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look prints what has ended since the last look, in the order of time.
func (t *tailing) look(ctx context.Context) error {
	ended, err := t.done(ctx)
	if err != nil {
		return err
	}
	dead, err := t.dead(ctx)
	if err != nil {
		return err
	}
	ended = append(ended, dead...)
	slices.SortStableFunc(ended, func(a, b tailRecord) int { return a.At.Compare(b.At) })
	for _, record := range ended {
		name := fmt.Sprint(record.Outcome, record.ID)
		if _, known := t.seen[name]; known {
			continue
		}
		t.seen[name] = record.At
		if record.At.After(t.from) {
			t.from = record.At
		}
		cells := []string{moment(record.At), record.Outcome, number(record.ID), nameCell(record.Topic), nameCell(record.MessageID), nameCell(record.Key)}
		if record.Outcome != string(admin.Done) {
			cells = append(cells, short(record.Error))
		}
		if err := t.one(record, strings.Join(cells, "  ")+"\n"); err != nil {
			return err
		}
	}
	for name, at := range t.seen {
		if at.Before(t.from.Add(-2 * tailOverlap)) {
			delete(t.seen, name)
		}
	}
	return nil
}

// earliest is from when a look reads.
func (t *tailing) earliest() time.Time {
	if at := t.from.Add(-tailOverlap); at.After(t.begin) {
		return at
	}
	return t.begin
}

func (t *tailing) done(ctx context.Context) (ended []tailRecord, err error) {
	page, _, err := t.admin.Messages(ctx, admin.Filter{Target: t.target, Status: admin.Done, Topic: t.topic, From: t.earliest(), Limit: pageLimit})
	for _, m := range page {
		ended = append(ended, tailRecord{
			At: utc(m.DoneAt), Outcome: string(admin.Done), ID: m.ID, Topic: m.Topic, MessageID: m.MessageID, Key: m.Key, KeyBase64: binary(m.Key), Attempts: m.Attempts,
		})
	}
	if len(page) == pageLimit {
		t.progress("Some messages that were done may be missing here: the latest %d of each look are shown.", pageLimit)
	}
	return ended, err
}

func (t *tailing) dead(ctx context.Context) (ended []tailRecord, err error) {
	var last int64
	newest := t.statements.Fill("SELECT COALESCE(MAX(id), 0) FROM {dead_letters}")
	if err := t.db.QueryRowContext(ctx, newest).Scan(&last); err != nil {
		return nil, fmt.Errorf("find the last dead letter: %w", err)
	}
	filter := admin.Filter{
		Target: t.target, Topic: t.topic, From: t.earliest(), Resolved: "any", Limit: pageLimit,
	}
	if after := t.letters - tailLetters; after > 0 {
		filter.After = strconv.FormatInt(after, 10)
	}
	if t.target.Kind == kindInbox {
		filter.Target, filter.Consumer = admin.Target{}, t.target.Name
	}
	letters, _, err := t.admin.DeadLetters(ctx, filter)
	for _, l := range letters {
		ended = append(ended, tailRecord{
			At: utc(l.DiedAt), Outcome: "DEAD", ID: l.ID, Topic: l.Topic, MessageID: l.MessageID, Key: l.Key, KeyBase64: binary(l.Key), Attempts: l.Attempts, Error: l.Error,
		})
	}
	if t.letters = last; len(letters) == pageLimit { // the rest comes with the next look
		t.letters = letters[len(letters)-1].ID + tailLetters
	}
	return ended, err
}
