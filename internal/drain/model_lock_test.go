package drain

import (
	"cmp"
	"database/sql"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// modelLock is a transaction of somebody else that has locked the row of a message.
type modelLock struct {
	tx      *sql.Tx
	message *modelMessage
}

// modelPatience is how long a removal waits for a lock on PostgreSQL. MariaDB's server waits for a
// second. A removal that takes longer without a lock, since the machine is busy, is given up. Its
// rows may then seem to be locked, until the server has noticed that.
const modelPatience = 200 * time.Millisecond

// lockChanges ends the lock that there is, or locks the row of a message.
func (w *world) lockChanges() {
	if w.lock != nil {
		w.unlock()
		return
	}
	var running, stored []*modelMessage
	for _, m := range w.messages {
		if m.place == pending && w.running(m) {
			running = append(running, m)
		} else if m.place == pending {
			stored = append(stored, m)
		}
	}
	if rows := slices.Concat(running, stored); len(rows) > 0 {
		w.lockRow(rapid.SampledFrom(rows).Draw(w.T, "row"))
	}
}

func (w *world) lockRow(m *modelMessage) {
	w.Logf("somebody locks the row of %s", m.name)
	tx, err := w.db.DB.BeginTx(w.ctx, nil)
	require.NoError(w, err)
	w.lock = &modelLock{tx: tx, message: m}
	var row int64
	require.NoError(w, tx.QueryRowContext(w.ctx, w.db.Bind("SELECT id FROM postbox_messages WHERE id = ? FOR UPDATE"), m.id).Scan(&row))
}

func (w *world) unlock() {
	if w.lock != nil {
		w.Logf("the row of %s is free", w.lock.message.name)
		require.NoError(w, w.lock.tx.Rollback())
		w.lock = nil
	}
}

func (w *world) isLocked(m *modelMessage) bool { return w.lock != nil && w.lock.message == m }

// holdLocked keeps those of a process's turns that cannot be settled now, since the row is locked,
// or since a message before it in its key failed and its row is. It returns the others.
func (p *modelProcess) holdLocked(turns []turn) (free []turn) {
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.message.Ref.ID, b.message.Ref.ID) })
	closed := map[int64]bool{} // keys
	for _, t := range turns {
		m := p.byID(t.message.Ref.ID)
		failed := t.outcome.Verdict == spool.Retry || t.outcome.Verdict == spool.Dead || t.outcome.Verdict == spool.Wait || t.outcome.Verdict == spool.Again
		back := t.outcome.Verdict == spool.Postpone && (t.message.Started > 0 || t.outcome.Locked)
		locked := m != nil && p.isLocked(m) && (failed || back || t.outcome.Verdict == spool.Done)
		if failed && t.message.HasKey {
			locked = locked || closed[t.message.KeyHash]
			closed[t.message.KeyHash] = closed[t.message.KeyHash] || locked
		}
		if locked {
			p.log("holds %s", t.message.MessageID)
			p.held = append(p.held, t)
		} else {
			free = append(free, t)
		}
	}
	return free
}

// beImpatient lets removals that meet the lock give up soon, where the server does not.
func (p *modelProcess) beImpatient() {
	p.d.settle.patience = LockPatience
	if p.lock != nil && p.db.Dialect == postbox.PostgreSQL {
		p.d.settle.patience = modelPatience
	}
}

// othersGoOn locks a row, and all messages but that one and those of its key are done nevertheless.
func (p *modelProcess) othersGoOn() {
	p.lockChanges()
	if p.lock == nil {
		return
	}
	locked := p.lock.message
	left := func() bool {
		return slices.ContainsFunc(p.messages, func(m *modelMessage) bool {
			ofKey := m == locked || m.key != "" && m.key == locked.key && !p.settings.Unordered
			return m.place == pending && !ofKey
		})
	}
	enough := 10 + 3*len(p.messages)
	for round := 0; left(); round++ {
		require.Less(p, round, enough, "others wait for the row of %s", locked.name)
		p.goOn(round > enough/2)
	}
	p.unlock()
}
