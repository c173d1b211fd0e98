package command

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/due"
)

// checkRecord says for how long the oldest due message of a target has been due, and for how long
// an operator has paused the target.
type checkRecord struct {
	admin.Target
	DueSince float64 `json:"due_seconds"`
	Paused   float64 `json:"paused_seconds,omitempty"`
	OK       bool    `json:"ok"`
}

// checkBounds are what a probe allows.
type checkBounds struct{ maxAge, maxPause durationFlag }

func (p *program) checkCommand() *cobra.Command {
	var target targetFlags
	bounds := checkBounds{maxAge: durationFlag{5 * time.Minute}, maxPause: durationFlag{time.Hour}}
	cmd := &cobra.Command{
		Use: "check", Short: "Fail if due messages wait for too long, for probes",
		Long: `Fail if a message has been due for longer than --max-age: in any outbox or
queue, or in the one that --outbox or --queue names.

A ready message is due since it was written; that of a queue with batches by age
or on a schedule, since the time of its batch. A scheduled or failed message is
due since its time, or its next attempt, has come. Parked messages are not due,
and dead letters do not count: see "postbox queues". An outbox or queue without
a due message is not listed. Messages whose outbox or queue does not exist are
"missing", with its id: "postbox doctor" says what to do.

The messages of an outbox or queue that an operator has paused are not late, until
the pause is longer than --max-pause: then it was probably forgotten. Until then
OK is "paused", and the standard error says for how long. Messages of keys and
topics that are paused are late like others.

The error says what keeps the messages, as "postbox doctor" and the dashboard do,
with the command that helps.

The exit code is 0 if all is well, 3 if a message is too old, or may be, or an
outbox or queue is paused for too long, and 1 if the database cannot be asked.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.onEach(existing, func(s *session, _ []string) error { return s.check(s.cmd.Context(), target, bounds) }),
	}
	target.addFilterTo(cmd)
	cmd.Flags().Var(&bounds.maxAge, "max-age", "how long a message may be due")
	cmd.Flags().Var(&bounds.maxPause, "max-pause", "how long an outbox or queue may be paused before its messages are late")
	return cmd
}

func (s *session) check(ctx context.Context, chosen targetFlags, bounds checkBounds) error {
	if err := s.exists(ctx, chosen); err != nil {
		return err
	}
	due, err := s.dueSince(ctx)
	if err != nil {
		return err
	}
	late, paused, err := s.listDue(due, chosen, bounds)
	if err != nil {
		return err
	}
	var problems []string
	if len(late) > 0 {
		problems = append(problems, fmt.Sprintf("messages have been due for more than %s in %s%s", bounds.maxAge.Duration, count(len(late), outboxOrQueue), s.obstacles(ctx, late)))
	}
	if paused > 0 {
		problems = append(problems, fmt.Sprintf("due messages wait in %s, paused for more than %s", count(paused, outboxOrQueue), bounds.maxPause.Duration))
	}
	if len(problems) > 0 {
		return foundf("%s", strings.Join(problems, "; "))
	}
	return nil
}

// listDue prints the chosen targets that have due messages. It returns those whose messages are
// late, and how many have been paused for too long.
func (s *session) listDue(all []lateness, chosen targetFlags, bounds checkBounds) (late map[admin.Target]bool, paused int, err error) {
	list := s.list("OUTBOX OR QUEUE", "OLDEST DUE FOR", "OK")
	late = map[admin.Target]bool{}
	for _, d := range all {
		if chosen.any() && d.target != chosen.one() {
			continue
		}
		verdict := bounds.verdict(d)
		switch {
		case verdict != checkOK && d.paused:
			s.progress("The %s has been paused for %s, and its messages wait: \"postbox resume --%s %s\" lets them go on.",
				d.target, span(d.pause), d.target.Kind, shellWord(d.target.Name))
			if verdict == checkLate {
				paused++
			}
		case verdict == checkLate:
			late[d.target] = true
		}
		record := checkRecord{d.target, d.age.Seconds(), d.pause.Seconds(), verdict != checkLate}
		if err := list.add(record, targetCell(d.target), span(d.age), verdict); err != nil {
			return late, paused, err
		}
	}
	return late, paused, list.end()
}

// exists fails if the chosen target does not exist: a probe with a wrong name must not succeed.
func (s *session) exists(ctx context.Context, chosen targetFlags) error {
	if !chosen.any() {
		return nil
	}
	a, err := s.admin("")
	if err != nil {
		return err
	}
	_, _, err = a.Messages(ctx, admin.Filter{Target: chosen.one(), Limit: 1})
	return err
}

// lateness is for how long the oldest due message of a target has been due, and for how long an
// operator has paused the target.
type lateness struct {
	target admin.Target
	age    time.Duration
	paused bool
	pause  time.Duration
}

// What check says of a target, in the column OK.
const (
	checkOK     = "yes"
	checkPaused = "paused"
	checkLate   = "no"
)

// verdict says whether messages are late. A pause is wanted, until it is so long that it was
// probably forgotten.
func (b checkBounds) verdict(d lateness) string {
	switch {
	case d.age <= b.maxAge.Duration:
		return checkOK
	case d.paused && d.pause <= b.maxPause.Duration:
		return checkPaused
	default:
		return checkLate
	}
}

func (s *session) dueSince(ctx context.Context) ([]lateness, error) {
	var all []lateness
	err := s.query(ctx, s.statements.Ages, func(rows *sql.Rows) error {
		var id int64
		var name sql.NullString
		var ages dialect.Ages
		err := rows.Scan(append([]any{&id, &name}, ages.Columns()...)...)
		if since := due.Since(&ages); since != dialect.Never {
			micros := func(at int64) time.Duration { return time.Duration(ages.Since(at)) * time.Microsecond }
			all = append(all, lateness{stored(id, name), micros(since), ages.Paused != dialect.Never, micros(ages.Paused)})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for due messages: %w", err)
	}
	slices.SortFunc(all, func(a, b lateness) int { return byKind(a.target, b.target) })
	return all, nil
}

// query reads the rows of a statement that the package admin has no method for.
func (s *session) query(ctx context.Context, text string, read func(rows *sql.Rows) error) error {
	rows, err := s.db.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
