package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// starts counts the starts of suspects, of which there are thousands after a crash with a backlog. The workers that come
// while a transaction counts wait in line, and the next one counts for all of them, as in the group commit of a database.
type starts struct {
	turn sync.Mutex // whose owner counts
	mu   sync.Mutex
	line []*start
}

// start is a message whose start is to be counted.
type start struct {
	message *spool.Message
	tried   bool // together with others
	alone   bool // that did not work
	counted bool
	err     error
}

// countStart counts the start of a suspect before it is handed out. It reports false where the lane was lost, or where a trigger of the user
// keeps the row as it is.
func (d *Drainer) countStart(ctx context.Context, m *spool.Message) (bool, error) {
	if !m.Exposed && !m.Suspect() {
		return true, nil
	}
	s := &start{message: m}
	d.countInTurn(ctx, s)
	if s.alone {
		s.counted, s.err = d.countAlone(ctx, m)
	}
	m.Counted = s.counted
	if s.counted || errors.Is(s.err, postbox.ErrCommitUnknown) { // then it may be counted all the same
		m.Started = 1
	}
	return s.counted, s.err
}

// countInTurn returns when s has been counted, or the try has failed: the worker that has the turn first counts for all in line.
func (d *Drainer) countInTurn(ctx context.Context, s *start) {
	d.starts.mu.Lock()
	d.starts.line = append(d.starts.line, s)
	d.starts.mu.Unlock()

	d.starts.turn.Lock()
	defer d.starts.turn.Unlock()
	if s.tried {
		return
	}
	d.starts.mu.Lock()
	line := d.starts.line
	d.starts.line = nil
	d.starts.mu.Unlock()
	counted, err := d.countTogether(ctx, line)
	for _, s := range line {
		s.tried, s.counted = true, counted[s.message.Ref.ID]
		if errors.Is(err, postbox.ErrCommitUnknown) {
			s.err = fmt.Errorf("count the start of message %d: %w", s.message.Ref.ID, err)
		} else {
			s.alone = !s.counted
		}
	}
}

// countTogether counts those whose rows are not locked, and returns their ids, or none with an error. The others, such as one
// whose row the process still has locked that held the lane before, are counted alone: there they hold up no others.
func (d *Drainer) countTogether(ctx context.Context, line []*start) (counted map[int64]bool, err error) {
	started := make([]dialect.Started, len(line))
	for i, s := range line {
		started[i] = dialect.Started{Ref: s.message.Ref, Before: s.message.Starts}
	}
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	err = spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error {
		counted, err = spool.SelectIDs(ctx, tx, d.spool.Statements.LockStarts(d.id, started))
		if err != nil || len(counted) == 0 {
			return err
		}
		mine := slices.DeleteFunc(slices.Clone(started), func(s dialect.Started) bool { return !counted[s.ID] })
		changed, err := spool.ExecPrepared(ctx, tx, d.prepared, d.spool.Statements.CountStarts(d.id, mine))
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

// errNotAll rolls back a count of messages whose lane was lost between the two statements.
var errNotAll = errors.New("not all starts were counted")

// countAlone counts the start of one message, once. The error is ErrRowLocked where its row is locked, and then it is not counted.
func (d *Drainer) countAlone(ctx context.Context, m *spool.Message) (counted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, spool.StatementTimeout)
	defer cancel()
	locked, err := d.inUnlocked(ctx, []dialect.Ref{m.Ref}, func(tx *sql.Tx, locked map[int64]bool) error {
		if len(locked) > 0 {
			return nil
		}
		changed, err := spool.Affected(spool.Directly(ctx, tx, d.spool.Statements.CountStart(dialect.CountStartParams{
			Spool: m.Spool.ID(), Ref: m.Ref, Add: 1, MostStarts: m.Starts,
		})))
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

// takeBackStart takes back the start of a message that came back and whose outcome is not written, or could not be, since the
// lane was lost: it has not ended its process, and must not be blamed for what befalls the next one.
func (d *Drainer) takeBackStart(ctx context.Context, tx *sql.Tx, m *spool.Message) error {
	if m.Started == 0 {
		return nil
	}
	if err := spool.Run(ctx, tx, d.spool.Statements.TakeBackStart(d.id, m.Ref)); err != nil {
		return fmt.Errorf("take back the start of message %d: %w", m.Ref.ID, err)
	}
	return nil
}

// takeBackStarts does so for those that are given, each once, and returns the ids of those whose rows are locked: among them are also
// those that could not be handled because of that, and have no start to take back.
func (d *Drainer) takeBackStarts(ctx context.Context, entries []*schedule.Entry) (locked map[int64]bool, err error) {
	locked = map[int64]bool{}
	concerned := slices.DeleteFunc(slices.Clone(entries), func(e *schedule.Entry) bool { return e.Message.Started == 0 && !e.Outcome.Locked })
	for part := range slices.Chunk(concerned, maxSettle) {
		found, err := d.inUnlocked(ctx, refsOf(part), func(tx *sql.Tx, locked map[int64]bool) error {
			for _, e := range unlocked(part, locked) {
				if err := d.takeBackStart(ctx, tx, e.Message); err != nil {
					return err
				}
			}
			return nil
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
