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
)

// checkRecord says for how long the oldest due message of a target has been due.
type checkRecord struct {
	targetRecord
	DueSince float64 `json:"due_seconds"`
	OK       bool    `json:"ok"`
}

func (p *program) checkCommand() *cobra.Command {
	var target targetFlags
	maxAge := durationFlag{5 * time.Minute}
	cmd := &cobra.Command{
		Use: "check", Short: "Fail if due messages wait for too long, for probes",
		Long: `Fail if a message has been due for longer than --max-age: in any outbox or
queue, or in the one that --outbox or --queue names.

A ready message is due since it was written. A scheduled or failed message is
due since its time, or its next attempt, has come. Parked messages are not due,
and dead letters do not count: see "postbox queues". An outbox or queue without
a due message is not listed. Messages whose outbox or queue does not exist are
"missing", with its id: "postbox doctor" says what to do.

If the log was set up for messages without rows (see "postbox log"), a process
must read it, except with --queue: nothing tells how old the messages in it are.

If a publisher or a handler has not returned for longer than --max-age, the error
names its process and its message.

The exit code is 0 if all is well, 3 if a message is too old, or may be, and 1
if the database cannot be asked.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error { return s.check(s.cmd.Context(), target, maxAge.Duration) }),
	}
	target.addFilterTo(cmd)
	cmd.Flags().Var(&maxAge, "max-age", "how long a message may be due")
	return cmd
}

func (s *session) check(ctx context.Context, chosen targetFlags, maxAge time.Duration) error {
	if err := s.exists(ctx, chosen); err != nil {
		return err
	}
	due, err := s.dueSince(ctx)
	if err != nil {
		return err
	}
	list, late := s.list("OUTBOX OR QUEUE", "OLDEST DUE FOR", "OK"), map[targetRecord]bool{}
	for _, d := range due {
		if chosen.any() && d.target != recordOf(chosen.one()) {
			continue
		}
		record := checkRecord{d.target, d.age.Seconds(), d.age <= maxAge}
		if !record.OK {
			late[d.target] = true
		}
		if err := list.add(record, record.cell(), span(d.age), yesNo(record.OK)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if len(late) > 0 {
		return foundf("messages have been due for more than %s in %s%s", maxAge, count(len(late), outboxOrQueue), s.longCalls(ctx, late, maxAge))
	}
	if unread, _, err := s.logUnread(ctx, chosen); err != nil {
		return err
	} else if unread != "" {
		return foundf("%s", unread)
	}
	return nil
}

// longCalls says which calls of these targets have not returned for that long. Their messages are due all the while. It says nothing if that cannot be read: the
// role may have the rights of a probe alone.
func (s *session) longCalls(ctx context.Context, late map[targetRecord]bool, atLeast time.Duration) string {
	queues, err := s.queues(ctx)
	if err != nil {
		return ""
	}
	var text strings.Builder
	for _, info := range queues {
		if call := longCall(info, atLeast); call != "" && late[recordOf(info.Target)] {
			text.WriteString("; " + call)
		}
	}
	return text.String()
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
	_, err = a.Messages(ctx, admin.MessageFilter{Target: chosen.one(), Limit: 1})
	return err
}

// due is for how long the oldest due message of a target has been due.
type due struct {
	target targetRecord
	age    time.Duration
}

func (s *session) dueSince(ctx context.Context) ([]due, error) {
	var all []due
	err := s.query(ctx, s.statements.Ages, func(rows *sql.Rows) error {
		var id int64
		var name sql.NullString
		var ages dialect.Ages
		err := rows.Scan(append([]any{&id, &name}, ages.Columns()...)...)
		if since := ages.DueSince(); since != dialect.Never {
			all = append(all, due{stored(id, name), time.Duration(ages.Since(since)) * time.Microsecond})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for due messages: %w", err)
	}
	slices.SortFunc(all, func(a, b due) int { return a.target.compare(b.target) })
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
