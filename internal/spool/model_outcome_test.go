package spool

import (
	"database/sql"
	"errors"
	"time"

	"github.com/stretchr/testify/require"
)

// decide finds the outcomes of a batch as a handler does that keeps the rules.
func (p *modelProcess) decide(run *modelRun, verdict func(*Message) Verdict) {
	waiting := map[int64]bool{}
	for _, message := range run.messages {
		outcome := Outcome{Verdict: Postpone}
		if !message.HasKey || !waiting[message.KeyHash] {
			outcome.Verdict = verdict(message)
		}
		if outcome.Verdict == Retry || outcome.Verdict == Dead || outcome.Verdict == Wait {
			outcome.Err = errModel
		}
		if outcome.Verdict == Done && p.effective {
			outcome.Verdict = p.effect(message)
		}
		if outcome.Verdict == Again {
			outcome.Err = errConflict
			p.conflict(message)
		}
		if !outcome.through() {
			waiting[message.KeyHash] = true
		}
		run.outcomes = append(run.outcomes, outcome)
	}
}

var (
	errModel    = errors.New("handler says no")
	errConflict = errors.New("transaction conflicts with another one")
)

// effect writes the effect of a message and settles it in one transaction. That works for whoever holds its lane.
func (p *modelProcess) effect(message *Message) Verdict {
	m := p.byID(message.Ref.ID)
	if m != nil && p.isLocked(m) {
		return Again // the transaction is given up
	}
	mine := m != nil && p.readLanes()[message.Ref.Lane].token == message.Ref.Token
	err := InTx(p.ctx, p.db.DB, p.statements, func(tx *sql.Tx) error {
		if err := p.in("INSERT INTO effects (message_id) VALUES (?)", message.MessageID)(tx); err != nil {
			return err
		}
		return Settle(p.ctx, tx, Directly, []*Message{message})
	})
	if !mine {
		require.ErrorIs(p, err, ErrLost, message.MessageID)
		return Postpone
	}
	require.NoError(p, err, m.name)
	if m.key != "" && !p.settings.Unordered {
		for _, older := range p.messages {
			require.False(p, p.goesBefore(older, m), "%s has its effect before %s", m.name, older.name)
		}
	}
	m.place, m.kept = done, p.settings.History > 0
	return Settled
}

// conflict writes the effect of a message in a transaction that the database takes back, since it conflicts with another one.
func (p *modelProcess) conflict(message *Message) {
	if m := p.byID(message.Ref.ID); !p.effective || m != nil && p.isLocked(m) {
		return
	}
	err := InTx(p.ctx, p.db.DB, p.statements, func(tx *sql.Tx) error {
		if err := p.in("INSERT INTO effects (message_id) VALUES (?)", message.MessageID)(tx); err != nil {
			return err
		}
		if err := Settle(p.ctx, tx, Directly, []*Message{message}); err != nil {
			return err
		}
		return errConflict
	})
	if !errors.Is(err, ErrLost) {
		require.ErrorIs(p, err, errConflict, message.MessageID)
	}
}

// beginSettling says what must come of the turns that have ended, which the drainer settles next. The pause of those that met a conflict is
// the longest, so that it does not end before putOff.
func (p *modelProcess) beginSettling() []turn {
	p.beImpatient()
	ended := p.ended
	p.ended = nil
	for _, t := range ended {
		if t.outcome.Verdict == Again {
			p.d.setbacks.add(t.message, time.Now())
			p.d.setbacks.known[t.message.Identity()] = setback{inARow: 10 * setbacksTold}
		}
	}
	if p.d.held.tryAt.IsZero() {
		ended, p.held = append(p.held, ended...), nil
	}
	ended = p.holdLocked(ended)
	p.settle(ended)
	return ended
}

// putOff lets messages that met a conflict, or were not settled, wait until the model lets time pass.
func (p *modelProcess) putOff(ended []turn) {
	p.restUntil(time.Now().Add(time.Hour))
	for _, t := range ended {
		if m := p.byID(t.message.Ref.ID); t.outcome.Verdict == Again && m != nil && !m.due {
			p.exec("UPDATE postbox_messages SET available_at = available_at + ? WHERE id = ? AND state > 0", time.Hour.Microseconds(), m.id)
		}
	}
}

// restUntil sets the end of the rest of messages that were not settled, see setback.go.
func (p *modelProcess) restUntil(end time.Time) {
	for _, e := range p.d.setbacks.resting {
		e.until = end
	}
}
