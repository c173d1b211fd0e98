package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logQuiet is for how long no message may have been taken from the log until drain believes that there is none. A process that
// reads stores its position more often while it has messages, even if a call of the broker hangs.
const logQuiet = 6 * time.Second

// logState is how it stands with messages that are in the log alone. They have no row, so no count has them.
type logState struct {
	position dialect.LogPosition
	unread   string // why messages may wait in the log and nothing takes them; empty if a process reads
}

// lookAtLog returns the state of the log; ok is false if the log was not set up for messages without rows, or the target is a queue.
func (s *session) lookAtLog(ctx context.Context, chosen targetFlags) (state logState, ok bool, err error) {
	if chosen.any() && chosen.one().IsQueue() {
		return state, false, nil
	}
	status, ok, err := s.logStatus(ctx)
	if err != nil || !ok {
		return state, false, err
	}
	if state.position, err = s.logPosition(ctx); err != nil {
		return state, false, err
	}
	for _, about := range []string{pgtail.AboutSlot, pgtail.AboutReader} {
		for _, f := range status.Findings {
			if f.Problem && f.About == about && state.unread == "" {
				state.unread = fmt.Sprintf("messages may wait in the log: %s: %s", f.What, f.Fix)
			}
		}
	}
	return state, true, nil
}

// logStatus returns how it stands with the log for messages without rows; ok is false if it was not set up, nor begun to be.
func (s *session) logStatus(ctx context.Context) (status pgtail.Status, ok bool, err error) {
	if !s.statements.Kind.Can().Tails {
		return status, false, nil
	}
	status, err = pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{})
	if dialect.LacksTable(err) { // tables of an earlier version
		return status, false, nil
	}
	return status, err == nil && (status.SetUp || status.Slot.Exists), err
}

// logPosition returns up to where the log was stored, which is nowhere if a set-up was cut off.
func (s *session) logPosition(ctx context.Context) (position dialect.LogPosition, err error) {
	err = s.db.QueryRowContext(ctx, s.statements.LogPosition).Scan(new(string), &position.Position, &position.Part, &position.Epoch)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return position, fmt.Errorf("read the position in the log: %w", err)
	}
	return position, nil
}

// logWatch finds out whether messages are still taken from the log.
type logWatch struct {
	last  logState
	since time.Time // when the state was another one
}

// pending returns why messages may wait in the log, or an empty text if a process reads and has taken none for long enough.
func (w *logWatch) pending(ctx context.Context, s *session, chosen targetFlags) (string, error) {
	state, ok, err := s.lookAtLog(ctx, chosen)
	if err != nil || !ok {
		return "", err
	}
	if w.since.IsZero() || state != w.last {
		w.last, w.since = state, time.Now()
	}
	if state.unread == "" && time.Since(w.since) < logQuiet {
		return fmt.Sprintf("messages may wait in the log: the process that reads must have taken none for %s, so --timeout must be longer than that", span(logQuiet)), nil
	}
	return state.unread, nil
}
