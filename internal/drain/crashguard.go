package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// The crash guard. A message that crashes its process would do so again and again, since its
// outcome is never written. So when a process takes a lane that the previous holder did not hand
// back, it treats the first messages of the lane as exposed: as many as a drainer holds in memory.
// It records the start of each of them before it hands it out. When the message comes back, with
// any outcome, it takes the record back. A message whose start is recorded and which has not come
// back is a suspect. Suspects run one at a time, so messages that merely ran beside the culprit are
// soon cleared. A message whose attempts and starts are used up is dead. As long as no process
// crashes, nothing of this is written.

// errCrashed is the error in the failure record of such a message.
var errCrashed = errors.New("each process that handled the message ended without an outcome")

// crashGuard says which messages are exposed, and counts the starts of suspects: starts.go.
type crashGuard struct{ *core }

// expose marks a message as exposed if its lane still has exposed messages to load.
func (s *laneSet) expose(m *spool.Message) {
	if l := s.of(m); l != nil && l.exposedToRead > 0 {
		m.Exposed = true
		l.exposedToRead--
		l.exposedInMemory++
	}
}

// unexpose reverses expose: the message will be read again.
func (s *laneSet) unexpose(m *spool.Message) {
	if l := s.of(m); l != nil && m.Exposed {
		l.exposedToRead++
		l.exposedInMemory--
	}
}

// endExposure notes that a message has been settled: it is not exposed any more.
func (s *laneSet) endExposure(m *spool.Message) {
	if l := s.of(m); l != nil && m.Exposed {
		l.exposedInMemory--
	}
}

// of returns the lane of a message, if the lane is still held with the token with which the message
// was read.
func (s *laneSet) of(m *spool.Message) *lane {
	if l := s.held[m.Ref.Lane]; l != nil && l.token == m.Ref.Token {
		return l
	}
	return nil
}

// findBlocked finds out, before a read, in which suspect lanes messages may stand behind one that
// waits for another attempt. Reads leave these out, so a read of the whole lane has not returned
// all exposed messages then. It does not ask about a lane with messages in memory, since they may
// fail before the read, nor about one that was found blocked, until that is read again from further
// back.
func (c *core) findBlocked(ctx context.Context) error {
	if c.config.Unordered {
		return nil // no message waits for another
	}
	var asked []*lane
	for _, l := range c.lanes.held {
		if l.exposedToRead > 0 && !l.unblocked && !l.blocked && c.scheduler.InLane(l.number) == 0 {
			asked = append(asked, l)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	blocked, err := spool.SelectIDs(ctx, c.db, c.spool.Statements.BlockedLanes(c.member()))
	if err != nil {
		return fmt.Errorf("look for retries in suspect lanes of spool %q: %w", c.spool.Name(), err)
	}
	for _, l := range asked {
		l.blocked = blocked[int64(l.number)]
		l.unblocked = !l.blocked
	}
	return nil
}

// mayBlock notes that a message of the lane did not succeed, before its outcome is stored.
func (s *laneSet) mayBlock(number int) {
	if l := s.held[number]; l != nil {
		l.unblocked = false
	}
}

// clearLanes clears the mark of lanes whose exposed messages have all been settled.
func (g *crashGuard) clearLanes(ctx context.Context) error {
	for _, l := range g.lanes.held {
		if !l.suspect || l.exposedToRead > 0 || l.exposedInMemory > 0 {
			continue
		}
		held := dialect.HeldLane{Spool: g.id.Load(), Lane: l.number, Token: l.token}
		if err := spool.Run(ctx, g.db, g.spool.Statements.ClearSuspect(held)); err != nil {
			return fmt.Errorf("clear lane %d of spool %q: %w", l.number, g.spool.Name(), err)
		}
		l.suspect = false
	}
	return nil
}

// excuse takes back the starts of messages in calls of a publisher that do not return although this
// process stops. They have not crashed it: mostly their broker does not answer, and that counts no
// attempt. A handler of a queue that does not return may itself be at fault.
func (g *crashGuard) excuse(ctx context.Context) error {
	hang := slices.DeleteFunc(g.scheduler.Running(), func(e *schedule.Entry) bool {
		return g.config.Local || !e.Message.Exposed && !e.Message.Suspect() // whose starts are not counted
	})
	for part := range slices.Chunk(hang, maxSettle) {
		_, err := g.inUnlocked(ctx, refsOf(part), func(ctx context.Context, tx *sql.Tx, locked map[int64]bool) error {
			refs := refsOf(unlocked(part, locked))
			if len(refs) == 0 {
				return nil
			}
			return spool.Run(ctx, tx, g.spool.Statements.TakeBackStarts(g.id.Load(), refs))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mostCrashes is how often a message may crash its process if it has attempts without a limit.
const mostCrashes = 15

// crashedTooOften reports whether a message has been started too often without coming back. One
// such start proves nothing, because the message then ran beside others. If a message is retried
// for ever, its failures do not count.
func (c *core) crashedTooOften(m *spool.Message) bool {
	failed, most := m.Attempts+m.Starts, c.config.Retry.Attempts
	if most < 0 {
		failed, most = m.Starts, mostCrashes
	}
	return m.Starts > 1 && failed >= most
}
