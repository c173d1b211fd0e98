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

// start is a message whose start is to be counted.
type start struct {
	message *spool.Message
	tried   bool // has been part of a group
	alone   bool // the group did not count it, so it is counted alone
	counted bool
	err     error
}

// countBatch counts the starts of the suspects of a batch at once, before any of them is handed
// out: each one by itself would cost round trips. What is not handed out then is taken back.
func (g *crashGuard) countBatch(ctx context.Context, batch []*schedule.Entry) map[*spool.Message]*start {
	var starts []*start
	byMessage := map[*spool.Message]*start{}
	for _, e := range batch {
		if m := e.Message; m.Doomed == nil && (m.Exposed || m.Suspect()) {
			s := &start{message: m}
			starts, byMessage[m] = append(starts, s), s
		}
	}
	if len(starts) > 0 {
		g.countInGroup(ctx, starts)
	}
	return byMessage
}

// countStart says whether the start of a message of a batch is counted, or need not be. What could
// not be counted with others is counted alone. It reports false if the lane was lost, or if a
// trigger of the user keeps the row unchanged.
func (g *crashGuard) countStart(ctx context.Context, s *start) (bool, error) {
	if s == nil {
		return true, nil
	}
	if s.alone {
		s.counted, s.err = g.countAlone(ctx, s.message)
		s.note()
	}
	s.message.Counted = s.counted
	return s.counted, s.err
}

// note tells the message that its start is counted, as it may be with an unknown commit.
func (s *start) note() {
	if s.counted || errors.Is(s.err, postbox.ErrCommitUnknown) {
		s.message.Started = 1
	}
}

// countInGroup returns when these have been counted, or the try has failed. The worker that gets
// the lock first counts for all that wait.
func (g *crashGuard) countInGroup(ctx context.Context, mine []*start) {
	g.mu.Lock()
	g.waiting = append(g.waiting, mine...)
	g.mu.Unlock()

	g.counting.Lock()
	defer g.counting.Unlock()
	if mine[0].tried {
		return
	}
	g.mu.Lock()
	group := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for part := range slices.Chunk(group, maxSettle) {
		counted, err := g.countTogether(ctx, part)
		for _, s := range part {
			s.tried, s.counted = true, counted[s.message.Ref.ID]
			if errors.Is(err, postbox.ErrCommitUnknown) {
				s.err = fmt.Errorf("count the start of message %d: %w", s.message.Ref.ID, err)
			} else {
				s.alone = !s.counted
			}
			s.note()
		}
	}
}

// countTogether counts the starts of messages whose rows are not locked. It returns their ids, or
// an error and none. The other messages, for example one whose row the previous holder of the lane
// still has locked, are counted alone: then they hold up no others.
func (g *crashGuard) countTogether(ctx context.Context, group []*start) (counted map[int64]bool, err error) {
	read := make([]dialect.AsRead, len(group))
	for i, s := range group {
		m := s.message
		read[i] = dialect.AsRead{Ref: m.Ref, Attempts: m.Attempts, LeastStarts: m.Starts, MostStarts: m.Starts}
	}
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	err = spool.InTx(ctx, g.db, g.spool.Statements, func(tx *sql.Tx) error {
		counted, err = spool.SelectIDs(ctx, tx, g.spool.Statements.LockAsRead(g.id.Load(), read))
		if err != nil || len(counted) == 0 {
			return err
		}
		mine := slices.DeleteFunc(read, func(m dialect.AsRead) bool { return !counted[m.ID] })
		changed, err := spool.ExecPrepared(ctx, tx, g.prepared, g.spool.Statements.CountStarts(g.id.Load(), mine))
		if err == nil && int(changed) < len(mine) {
			err = errNotAll
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return counted, nil
}

// errNotAll rolls back a count if the lane of a message was lost between the two statements.
var errNotAll = errors.New("not all starts were counted")

// countAlone counts the start of one message, once. If its row is locked, the error is ErrRowLocked
// and the start is not counted.
func (g *crashGuard) countAlone(ctx context.Context, m *spool.Message) (counted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	locked, err := g.inUnlocked(ctx, []dialect.Ref{m.Ref}, func(ctx context.Context, tx *sql.Tx, locked map[int64]bool) error {
		if len(locked) > 0 {
			return nil
		}
		changed, err := spool.Affected(spool.Directly(ctx, tx, g.spool.Statements.CountStarts(m.Spool.ID(), []dialect.AsRead{{
			Ref: m.Ref, Attempts: m.Attempts, MostStarts: m.Starts,
		}})))
		counted = changed > 0
		return err
	})
	if err == nil && len(locked) > 0 {
		err = spool.ErrRowLocked
	}
	if err != nil {
		return false, fmt.Errorf("count the start of message %d: %w", m.Ref.ID, err)
	}
	return counted, nil
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
