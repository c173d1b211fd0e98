package drain

import (
	"database/sql"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// decide finds the outcomes of a batch as a handler does that keeps the rules.
func (p *modelProcess) decide(run *modelRun, verdict func(*spool.Message) spool.Verdict) {
	waiting := map[int64]bool{}
	for _, message := range run.messages {
		outcome := spool.Outcome{Verdict: spool.Postpone}
		if !message.HasKey || !waiting[message.KeyHash] {
			outcome.Verdict = verdict(message)
		}
		if outcome.Verdict == spool.Retry || outcome.Verdict == spool.Dead || outcome.Verdict == spool.Wait {
			outcome.Err = errModel
		}
		if outcome.Verdict == spool.Done && p.effective {
			outcome.Verdict = p.effect(message)
		}
		if outcome.Verdict == spool.Again {
			outcome.Err = errConflict
			p.conflict(message)
		}
		if !outcome.Through() {
			waiting[message.KeyHash] = true
		}
		run.outcomes = append(run.outcomes, outcome)
	}
}

var (
	errModel    = errors.New("handler says no")
	errConflict = errors.New("transaction conflicts with another one")
)

// effect writes the effect of a message and settles it in one transaction. That works for whoever
// holds its lane.
func (p *modelProcess) effect(message *spool.Message) spool.Verdict {
	m := p.byID(message.Ref.ID)
	if m != nil && p.isLocked(m) {
		return spool.Again // the transaction is given up
	}
	mine := m != nil && p.readLanes()[message.Ref.Lane].token == message.Ref.Token
	err := spool.InTx(p.ctx, p.db.DB, p.statements, func(tx *sql.Tx) error {
		if err := p.in("INSERT INTO effects (message_id) VALUES (?)", message.MessageID)(tx); err != nil {
			return err
		}
		return spool.Settle(p.ctx, tx, spool.Directly, []*spool.Message{message})
	})
	if !mine {
		require.ErrorIs(p, err, spool.ErrLost, message.MessageID)
		return spool.Postpone
	}
	require.NoError(p, err, m.name)
	if m.key != "" && !p.settings.Unordered {
		for _, older := range p.messages {
			require.False(p, p.goesBefore(older, m), "%s has its effect before %s", m.name, older.name)
		}
	}
	m.place, m.kept = done, p.settings.History > 0
	return spool.Settled
}

// conflict writes the effect of a message in a transaction that the database takes back, since it
// conflicts with another one.
func (p *modelProcess) conflict(message *spool.Message) {
	if m := p.byID(message.Ref.ID); !p.effective || m != nil && p.isLocked(m) {
		return
	}
	err := spool.InTx(p.ctx, p.db.DB, p.statements, func(tx *sql.Tx) error {
		if err := p.in("INSERT INTO effects (message_id) VALUES (?)", message.MessageID)(tx); err != nil {
			return err
		}
		if err := spool.Settle(p.ctx, tx, spool.Directly, []*spool.Message{message}); err != nil {
			return err
		}
		return errConflict
	})
	if !errors.Is(err, spool.ErrLost) {
		require.ErrorIs(p, err, errConflict, message.MessageID)
	}
}

// beginSettling says what must come of the turns that have ended, which the drainer settles next.
// The pause of those that met a conflict is the longest, so that it does not end before putOff.
func (p *modelProcess) beginSettling() []turn {
	p.beImpatient()
	ended := p.ended
	p.ended = nil
	for _, t := range ended {
		if t.outcome.Verdict == spool.Again {
			p.d.settle.setbacks.add(t.message, time.Now())
			p.d.settle.setbacks.known[t.message.Identity()] = setback{inARow: 10 * setbacksUntilLogged}
		}
	}
	if p.d.settle.setbacks.lockedUntil.IsZero() {
		ended, p.held = append(p.held, ended...), nil
	}
	ended = p.holdLocked(ended)
	p.settle(ended)
	return ended
}

// putOff lets messages that met a conflict, or were not settled, wait until the model lets time
// pass.
func (p *modelProcess) putOff(ended []turn) {
	p.restUntil(time.Now().Add(time.Hour))
	for _, t := range ended {
		if m := p.byID(t.message.Ref.ID); t.outcome.Verdict == spool.Again && m != nil && !m.due {
			p.exec("UPDATE postbox_messages SET available_at = available_at + ? WHERE id = ? AND state > 0", time.Hour.Microseconds(), m.id)
		}
	}
}

// restUntil sets the end of the rest of messages that were not settled, see setback.go.
func (p *modelProcess) restUntil(end time.Time) {
	for _, e := range p.d.settle.setbacks.resting {
		e.Until = end
	}
}
