package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// countStarts counts the starts of the suspects of a batch at once, before any of them is handed
// out: each one by itself would cost round trips. What is not handed out then is taken back. It
// returns why starts were not counted: [spool.ErrRowLocked] of a row that is locked,
// [spool.ErrLost] of one that is not as it was read, since the lane was lost.
func (g *crashGuard) countStarts(ctx context.Context, batch []*schedule.Entry) (uncounted map[*spool.Message]error) {
	var suspects []*spool.Message
	for _, e := range batch {
		if m := e.Message; m.Doomed == nil && (m.Exposed || m.Suspect()) {
			suspects = append(suspects, m)
		}
	}
	uncounted = map[*spool.Message]error{}
	for part := range slices.Chunk(suspects, maxSettle) {
		mine, locked, err := g.countPart(ctx, part)
		for _, m := range part {
			id := m.Ref.ID
			switch {
			case err != nil:
				uncounted[m] = fmt.Errorf("count the start of message %d: %w", id, err)
			case locked[id]:
				uncounted[m] = fmt.Errorf("count the start of message %d: %w", id, spool.ErrRowLocked)
			case !mine[id]:
				uncounted[m] = spool.ErrLost
			}
			if uncounted[m] == nil || errors.Is(err, postbox.ErrCommitUnknown) {
				m.Started = 1
			}
		}
	}
	return uncounted
}

// countPart counts in one transaction. Another transaction may have locked some of the rows, as the
// previous holder of the lane does whose handler is still at it: they hold up no others.
func (g *crashGuard) countPart(ctx context.Context, part []*spool.Message) (mine, locked map[int64]bool, err error) {
	read := make([]dialect.AsRead, len(part))
	for i, m := range part {
		read[i] = dialect.AsRead{Ref: m.Ref, Attempts: m.Attempts, MostStarts: m.Starts}
	}
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	err = spool.InTx(ctx, g.db, g.spool.Statements, func(tx *sql.Tx) error {
		mine, locked, err = g.spool.LockAsRead(ctx, tx, g.id.Load(), read)
		if err != nil || len(mine) == 0 {
			return err
		}
		found := slices.DeleteFunc(slices.Clone(read), func(m dialect.AsRead) bool { return !mine[m.ID] })
		changed, err := spool.ExecPrepared(ctx, tx, g.prepared, g.spool.Statements.CountStarts(g.id.Load(), found))
		if err == nil && int(changed) < len(found) {
			err = spool.ErrLost // between the two statements
		}
		return err
	})
	return mine, locked, err
}

// takeBackIn takes back the starts of messages that came back, if their outcomes are not written,
// or could not be written because the lane was lost. They have not crashed their process, and must
// not be blamed if the next process crashes.
func (c *core) takeBackIn(ctx context.Context, tx *sql.Tx, entries []*schedule.Entry) error {
	refs := refsOf(slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return e.Message.Started == 0 }))
	if len(refs) == 0 {
		return nil
	}
	if err := spool.Run(ctx, tx, c.spool.Statements.TakeBackStarts(c.id.Load(), refs)); err != nil {
		return fmt.Errorf("take back the starts of messages: %w", err)
	}
	return nil
}

// takeBackStarts takes back the starts of these messages, each once. It returns the ids of messages
// whose rows are locked. These include messages that could not be handled because of the lock, and
// that have no start to take back.
func (c *core) takeBackStarts(ctx context.Context, entries []*schedule.Entry) (locked map[int64]bool, err error) {
	locked = map[int64]bool{}
	concerned := slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return e.Message.Started == 0 && !e.Outcome.Locked })
	for part := range slices.Chunk(concerned, maxSettle) {
		found, err := c.inUnlocked(ctx, refsOf(part), func(ctx context.Context, tx *sql.Tx, locked map[int64]bool) error {
			return c.takeBackIn(ctx, tx, unlocked(part, locked))
		})
		if err != nil {
			return nil, err
		}
		for _, e := range unlocked(part, found) {
			e.Message.Started = 0
		}
		maps.Copy(locked, found)
	}
	return locked, nil
}
