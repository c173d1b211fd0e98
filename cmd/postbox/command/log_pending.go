package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// logUnread returns why messages may wait in the log and nothing takes them. It is empty if a process reads. Messages in the log have no row, so no count has
// them. ok is false if the log was not set up for messages without rows, or the target is a queue.
func (s *session) logUnread(ctx context.Context, chosen targetFlags) (unread string, ok bool, err error) {
	if chosen.any() && chosen.one().IsQueue() {
		return "", false, nil
	}
	status, ok, err := s.logStatus(ctx, "")
	if err != nil || !ok {
		return "", false, err
	}
	for _, about := range []string{pgtail.AboutSlot, pgtail.AboutReader} {
		for _, f := range status.Findings {
			if f.Problem && f.About == about {
				return fmt.Sprintf("messages may wait in the log: %s: %s", f.What, f.Fix), true, nil
			}
		}
	}
	return "", true, nil
}

// logStatus returns how it stands with the log for messages without rows; ok is false if it was not set up, nor begun to be.
// With the address of the role that reads, also whether that one can read.
func (s *session) logStatus(ctx context.Context, reader string) (status pgtail.Status, ok bool, err error) {
	if !s.statements.Kind.Can().Tails {
		return status, false, nil
	}
	status, err = pgtail.InspectOutbox(ctx, s.database, pgtail.OutboxConfig{DSN: reader})
	if dialect.LacksTable(err) { // tables of an earlier version
		return status, false, nil
	}
	return status, err == nil && (status.SetUp || status.Slot.Exists), err
}

// logPosition returns up to where the log was stored, which is nowhere if a set-up was cut off.
func (s *session) logPosition(ctx context.Context) (position dialect.LogPosition, err error) {
	err = s.db.QueryRowContext(ctx, s.statements.LogPosition).Scan(new(string), &position.Position, &position.Part, &position.Epoch, new(int64))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return position, fmt.Errorf("read the position in the log: %w", err)
	}
	return position, nil
}

// logWatch finds out whether the log has been read up to its end. Up to where it was read cannot be compared with the end as it is now: a process that reads
// does not store its position while others write. So drain writes a mark behind which it expects the position.
type logWatch struct {
	reads bool  // a process does
	mark  int64 // 0: there is none
}

// pending returns why messages may wait in the log, or an empty text if it was read beyond the mark.
func (w *logWatch) pending(ctx context.Context, s *session, chosen targetFlags) (string, error) {
	unread, ok, err := s.logUnread(ctx, chosen)
	w.reads = err == nil && ok && unread == ""
	if !w.reads {
		return unread, err
	}
	if w.mark == 0 {
		return "messages may wait in the log, and this look cannot tell: --timeout must be longer", nil
	}
	position, err := s.logPosition(ctx)
	if err != nil || position.Position > w.mark {
		return "", err
	}
	return fmt.Sprintf("messages may wait in the log: it has been read and stored up to %s, and must be up to %s", logPlace(position.Position), logPlace(w.mark)), nil
}

// renew is called after a look at the rows. A mark counts that was made when there were none, since the handler of a message may have written into the log.
func (w *logWatch) renew(ctx context.Context, s *session, rows bool) error {
	if rows {
		w.mark = 0
	}
	if rows || w.mark != 0 || !w.reads {
		return nil
	}
	query := s.statements.MarkLog()
	if err := s.db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&w.mark); err != nil {
		return fmt.Errorf("write a mark into the log: %w", err)
	}
	return nil
}

// logPlace is a position in the log as PostgreSQL shows it.
func logPlace(position int64) string {
	return fmt.Sprintf("%X/%X", position>>32, position&math.MaxUint32)
}
