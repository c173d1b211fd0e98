package command

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// targetFlags choose an outbox or a queue, and for some commands an inbox.
type targetFlags struct{ outbox, queue, inbox string }

const defaultOutbox = "outbox"

func (t *targetFlags) addTo(cmd *cobra.Command) {
	nameVar(cmd.Flags(), &t.outbox, "outbox", `name of the outbox, "outbox" unless --outbox or --queue is set`)
	nameVar(cmd.Flags(), &t.queue, "queue", "name of the queue")
	cmd.MarkFlagsMutuallyExclusive("outbox", "queue")
}

// addWithInboxTo is addTo for a command that works on what is kept of messages, which an inbox has,
// too.
func (t *targetFlags) addWithInboxTo(cmd *cobra.Command) {
	nameVar(cmd.Flags(), &t.outbox, "outbox", `name of the outbox, "outbox" unless --outbox, --queue or --inbox is set`)
	nameVar(cmd.Flags(), &t.queue, "queue", "name of the queue")
	nameVar(cmd.Flags(), &t.inbox, "inbox", "consumer of the inbox")
	cmd.MarkFlagsMutuallyExclusive("outbox", "queue", "inbox")
}

// one returns the chosen target, by default the usual outbox.
func (t *targetFlags) one() admin.Target {
	switch {
	case t.inbox != "":
		return admin.Inbox(t.inbox)
	case t.queue != "":
		return admin.Queue(t.queue)
	case t.outbox != "":
		return admin.Outbox(t.outbox)
	default:
		return admin.Outbox(defaultOutbox)
	}
}

// any says whether a target was chosen.
func (t *targetFlags) any() bool { return *t != (targetFlags{}) }

// addFilterTo is addTo for a command that works on all outboxes and queues unless one is chosen.
func (t *targetFlags) addFilterTo(cmd *cobra.Command) {
	nameVar(cmd.Flags(), &t.outbox, "outbox", "only the outbox of this name")
	nameVar(cmd.Flags(), &t.queue, "queue", "only the queue of this name")
	cmd.MarkFlagsMutuallyExclusive("outbox", "queue")
}

// addFilterWithInboxTo is addFilterTo for a command that knows inboxes, too.
func (t *targetFlags) addFilterWithInboxTo(cmd *cobra.Command) {
	nameVar(cmd.Flags(), &t.outbox, "outbox", "only the outbox of this name")
	nameVar(cmd.Flags(), &t.queue, "queue", "only the queue of this name")
	nameVar(cmd.Flags(), &t.inbox, "inbox", "only the inbox of this consumer")
	cmd.MarkFlagsMutuallyExclusive("outbox", "queue", "inbox")
}

// byKind orders targets by their kinds, and then by their names.
func byKind(a, b admin.Target) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// The beginnings of names in the database that are those of queues, and of the histories of
// inboxes.
const (
	queuePrefix = "inbox "
	inboxPrefix = "received:"
)

// targetNamed returns the outbox, the queue or the inbox of a name in the database.
func targetNamed(stored string) admin.Target {
	if queue, is := strings.CutPrefix(stored, queuePrefix); is {
		return admin.Queue(queue)
	}
	if consumer, is := strings.CutPrefix(stored, inboxPrefix); is {
		return admin.Inbox(consumer)
	}
	return admin.Outbox(stored)
}

// The kinds of targets. A target without a row is missing.
const (
	kindQueue   = "queue"
	kindInbox   = "inbox"
	kindMissing = "missing"
)

// stored names a target by what the database has. Messages may name one that has no row, such as
// after a restore.
func stored(id int64, name sql.NullString) admin.Target {
	if !name.Valid {
		return admin.Target{Kind: kindMissing, Name: "id " + number(id)}
	}
	return targetNamed(name.String)
}

// targetCell names a target in a table.
func targetCell(t admin.Target) string {
	if t.Kind == kindMissing {
		return t.Kind + " " + t.Name
	}
	return t.Kind + " " + nameCell(t.Name)
}

// maxDays is the longest duration that a flag takes.
const maxDays = 36500

var errDuration = errors.New("write a duration such as 90s, 15m, 12h or 30d, up to 36500d")

// parseDuration is time.ParseDuration with days.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil || !(n >= 0 && n <= maxDays) { // NaN is neither
			return 0, errDuration
		}
		return time.Duration(n * float64(24*time.Hour)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxDays*24*time.Hour {
		return 0, errDuration
	}
	return d, nil
}

// durationFlag is a flag that takes days, too.
type durationFlag struct{ time.Duration }

// String returns the value as a person writes it.
func (d *durationFlag) String() string {
	if d.Duration == 0 {
		return ""
	}
	return d.Duration.String()
}

// Set parses the value.
func (d *durationFlag) Set(text string) (err error) {
	d.Duration, err = parseDuration(text)
	return err
}

// Type is what the usage calls the value.
func (d *durationFlag) Type() string { return "duration" }

// past reads the time of a flag: RFC 3339, or a duration before now, by the database's clock. It
// returns the zero time for an empty text.
func (s *session) past(ctx context.Context, flag, text string) (time.Time, error) {
	return s.timeOf(ctx, flag, text, func(d time.Duration) time.Duration { return -d })
}

// future is past for a duration after now.
func (s *session) future(ctx context.Context, flag, text string) (time.Time, error) {
	return s.timeOf(ctx, flag, text, func(d time.Duration) time.Duration { return d })
}

// clock is future for what may be a time of a day, too: the next one, in UTC.
func (s *session) clock(ctx context.Context, flag, text string) (time.Time, error) {
	hour, err := time.Parse("15:04", text)
	if err != nil {
		return s.future(ctx, flag, strings.TrimPrefix(text, "+"))
	}
	now, err := s.now(ctx)
	at := now.UTC().Truncate(24 * time.Hour).Add(time.Duration(hour.Hour())*time.Hour + time.Duration(hour.Minute())*time.Minute)
	if !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	return at, err
}

func (s *session) timeOf(ctx context.Context, flag, text string, fromNow func(time.Duration) time.Duration) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		if at.IsZero() || at.UnixMicro() <= 0 || at.UTC().Year() > maxYear {
			return time.Time{}, usagef("--%s: %.40q is not after the beginning of 1970 and before the year 10000", flag, text)
		}
		return at, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return time.Time{}, usagef("--%s: %.40q is no time: write one such as 2026-01-31T18:00:00Z, or a duration such as 15m, 12h or 30d", flag, text)
	}
	now, err := s.now(ctx)
	return now.Add(fromNow(d)), err
}

// idsOf reads ids of messages or dead letters, each once.
func idsOf(args []string) ([]int64, error) {
	ids := make([]int64, 0, len(args))
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id <= 0 {
			return nil, usagef("%.40q is no id: use the number in the column ID of the list", arg)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
