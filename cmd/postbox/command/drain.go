package command

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/admin"
)

// drainPause is the time between two looks of drain. A look is one statement, which reads one
// message of each target.
const drainPause = 500 * time.Millisecond

// drainProgress is the time between two lines of progress.
const drainProgress = 10 * time.Second

// drainRecord says whether a target is empty.
type drainRecord struct {
	admin.Target
	Empty bool `json:"empty"`
}

func (p *program) drainCommand() *cobra.Command {
	var target targetFlags
	timeout := durationFlag{time.Minute}
	cmd := &cobra.Command{
		Use: "drain", Short: "Wait until outboxes and queues are empty",
		Long: `Wait until no message is pending: in all outboxes and queues, or in the one that
--outbox or --queue names. The command only waits: forwarders and subscribers
handle the messages. Stop the producers first.

Messages that are scheduled, paused or parked count as pending. Dead letters do
not. Messages that are in a broker are not seen: an inbox may still get them, and
its handlers may then write others. Messages whose outbox or queue does not exist
are "missing", with its id: "postbox doctor" says what to do.

If something keeps messages, such as a pause or a missing process, the command
says so after ten seconds, and at the end.

The exit code is 0 if all are empty, and 3 if one is not empty when --timeout is
over.`,
		Args: arguments(cobra.NoArgs),
		RunE: p.on(func(s *session, _ []string) error {
			if err := s.exists(s.cmd.Context(), target); err != nil {
				return err
			}
			found, err := s.drain(s.cmd.Context(), target, timeout.Duration)
			if err != nil {
				return err
			}
			return s.drained(s.cmd.Context(), found, timeout.Duration)
		}),
	}
	target.addFilterTo(cmd)
	cmd.Flags().Var(&timeout, "timeout", "how long to wait, 0s to look once")
	return cmd
}

// drain waits, and returns what the last look has found.
func (s *session) drain(ctx context.Context, chosen targetFlags, timeout time.Duration) (found []drainRecord, err error) {
	begin := time.Now()
	ticker := time.NewTicker(drainPause)
	defer ticker.Stop()
	for said := begin; ; {
		found, err = s.fullness(ctx, chosen)
		left := notEmpty(found)
		if ctx.Err() != nil {
			return nil, stoppedf("interrupted after %s, and not empty", span(time.Since(begin).Round(time.Second)))
		}
		if err != nil || len(left) == 0 || time.Since(begin) >= timeout {
			return found, err
		}
		if time.Since(said) >= drainProgress {
			said = time.Now()
			s.progress("%s not empty after %s%s.", are(len(left), outboxOrQueue), span(time.Since(begin).Round(time.Second)), s.obstacles(ctx, left))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// fullness looks at all targets at one moment, since handling a message of one may write another to
// a second one, which may be new.
func (s *session) fullness(ctx context.Context, chosen targetFlags) ([]drainRecord, error) {
	var all []drainRecord
	err := s.query(ctx, s.statements.Fullness, func(rows *sql.Rows) error {
		var id int64
		var name sql.NullString
		var messages bool
		err := rows.Scan(&id, &name, &messages)
		target := stored(id, name)
		if messagesWait := targetNamed(name.String).Kind != kindInbox; messagesWait && (!chosen.any() || target == chosen.one()) {
			all = append(all, drainRecord{target, !messages})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for pending messages: %w", err)
	}
	slices.SortFunc(all, func(a, b drainRecord) int { return byKind(a.Target, b.Target) })
	return all, nil
}

// notEmpty are the targets that are not empty.
func notEmpty(found []drainRecord) map[admin.Target]bool {
	left := map[admin.Target]bool{}
	for _, record := range found {
		if !record.Empty {
			left[record.Target] = true
		}
	}
	return left
}

func (s *session) drained(ctx context.Context, found []drainRecord, timeout time.Duration) error {
	list := s.list("OUTBOX OR QUEUE", "EMPTY")
	for _, record := range found {
		if err := list.add(record, targetCell(record.Target), yesNo(record.Empty)); err != nil {
			return err
		}
	}
	if err := list.end(); err != nil {
		return err
	}
	if left := notEmpty(found); len(left) > 0 {
		return foundf("not empty after %s: %d of %s%s", timeout, len(left), count(len(found), outboxOrQueue), s.obstacles(ctx, left))
	}
	return nil
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
