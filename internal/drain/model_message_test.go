package drain

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// place is where a message is.
type place int

const (
	nowhere place = iota // not committed
	pending
	done
	dead
	gone // a dead letter that was resolved and purged
)

// modelMessage is what must be true of a message.
type modelMessage struct {
	name, key, topic string
	// begun and committed are when its transaction was.
	begun, committed int64
	place            place
	// poison: the broker never takes it.
	poison bool

	// While it is pending: its row.
	id               int64
	state            int
	due, parked      bool
	attempts, starts int
	// until is the end of its pause, by the broker's clock.
	until time.Time
	// published: the broker has got it. crashed: it was handled too often without an outcome.
	published, crashed bool

	// When it is done: whether it is in the history.
	kept bool
	// When it is dead: its letter.
	letter   int64
	resolved bool
}

// turn is a message's turn that has ended in a process and is not settled yet.
type turn struct {
	message *spool.Message
	outcome spool.Outcome
}

// settle says what must come of the turns of a process that settles now.
func (w *world) settle(turns []turn) {
	lanes := w.readLanes()
	for _, t := range turns {
		m := w.byID(t.message.Ref.ID)
		if m == nil {
			continue // another process has settled it, or an operator
		}
		if lanes[t.message.Ref.Lane].token != t.message.Ref.Token {
			m.starts = max(m.starts-t.message.Started, 0) // it came back, and nothing else may change
			continue
		}
		w.settleTurn(m, t)
	}
}

func (w *world) settleTurn(m *modelMessage, t turn) {
	switch t.outcome.Verdict {
	case spool.Done:
		m.place, m.kept = done, w.settings.History > 0
	case spool.Settled:
		require.Fail(w, "a message that its handler removed is there", m.name)
	case spool.Postpone:
		m.starts -= t.message.Started
	case spool.Wait, spool.Again: // no attempt is counted
		m.starts -= t.message.Started
		m.state, m.due = dialect.StateRetrying, false
	case spool.Retry, spool.Dead:
		m.crashed = t.message.Doomed != nil
		fewer := m.starts < t.message.AllStarts() // it came back to the process that had the lane before
		m.starts -= t.message.Started
		over := t.outcome.Verdict == spool.Dead || t.outcome.Final
		end := over || w.settings.Retry.Attempts > 0 && m.attempts+t.message.Starts+1 >= w.settings.Retry.Attempts
		switch {
		case end && fewer:
			return
		case end && w.settings.Head == HeadPark:
			m.state, m.parked, m.due = dialect.StateRetrying, true, false
		case end:
			m.place, m.letter = dead, 0
			return
		default:
			m.state, m.due = dialect.StateRetrying, false
		}
		m.attempts++
	}
}

// byID returns the pending message with this row, nil if there is none.
func (w *world) byID(id int64) *modelMessage {
	for _, m := range w.messages {
		if m.place == pending && m.id == id {
			return m
		}
	}
	return nil
}

// mayRun checks that a process may hand out a message now: it holds the lane, knows the message as
// it is, and nobody who must go first is left behind. Those of the process that are done but not
// settled are not.
func (w *world) mayRun(p *modelProcess, before []*schedule.Entry, e *schedule.Entry, lanes map[int]modelLane) {
	message := e.Message
	lane := lanes[message.Ref.Lane]
	require.Equal(w, p.d.configured.Holder, lane.holder, "lane %d", message.Ref.Lane)
	require.Equal(w, lane.token, message.Ref.Token, "lane %d", message.Ref.Lane)
	require.True(w, lane.live, "the lease has ended")
	if w.settings.Exclusive {
		for _, other := range lanes {
			require.Equal(w, p.d.configured.Holder, other.holder, "one has all lanes")
		}
	}
	m := w.byID(message.Ref.ID)
	if m == nil && p.d.control.version != w.version {
		return // an operator has just taken it away
	}
	require.NotNil(w, m, "message %d is not pending", message.Ref.ID)
	require.Equal(w, m.name, message.MessageID)
	require.Equal(w, m.state, message.Ref.State, m.name)
	require.Equal(w, m.attempts, message.Attempts, m.name)
	require.GreaterOrEqual(w, message.Starts, m.starts, m.name)
	require.True(w, m.due && !m.parked, "%s has to wait", m.name)
	if p.d.control.version == w.version {
		require.False(w, w.paused || w.keys[m.key] || w.topics[m.topic], "%s is paused", m.name)
	}
	for _, run := range p.runs {
		for _, other := range run.batch {
			require.NotEqual(w, message.Ref.ID, other.Message.Ref.ID, "%s runs already", m.name)
			if !w.settings.Unordered && m.key != "" {
				require.NotEqual(w, m.key, w.keyOf(other), "%s: its key runs already", m.name)
			}
			require.False(w, message.Suspect() && other.Message.Suspect(), "%s runs beside another suspect", m.name)
		}
	}
	for _, t := range p.ended {
		require.False(w, message.Suspect() && t.message.Suspect() && t.message.Started > 0, "%s: the suspect before it is not settled", m.name)
	}
	if m.key == "" || w.settings.Unordered {
		return
	}
	for _, t := range p.held {
		if t.message.Ref.Token != message.Ref.Token { // the lane was lost meanwhile, and nothing comes of it
			continue
		}
		require.NotEqual(w, message.KeyHash, t.message.KeyHash, "%s is handed out, and its key waits for the row of %s", m.name, t.message.MessageID)
	}
	for _, older := range w.messages {
		if w.goesBefore(older, m) && !p.through(before, older, message.Ref.Token) {
			require.Fail(w, "order", "%s is handed out before %s", m.name, older.name)
		}
	}
}

func (w *world) keyOf(e *schedule.Entry) string { return e.Message.Key }

// goesBefore says that a message must be through before another one of its key: it is older, and
// was committed before the other's transaction began. What its producer scheduled for later holds
// nobody back until it has failed, and one that a paused topic, or one in an outage, has left
// behind does not hold back other topics.
func (w *world) goesBefore(older, m *modelMessage) bool {
	return older.place == pending && older.key == m.key && older.id < m.id && older.committed < m.begun &&
		older.state != dialect.StateScheduled && (older.topic == m.topic || !w.excluding)
}
