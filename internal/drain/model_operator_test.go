package drain

import (
	"database/sql"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// say changes what operators say, in one transaction with the version.
func (w *world) say(queries ...func(tx *sql.Tx) error) {
	w.version++
	require.NoError(w, spool.InTx(w.ctx, w.db.DB, w.statements, func(tx *sql.Tx) error {
		for _, query := range queries {
			if err := query(tx); err != nil {
				return err
			}
		}
		return w.in("UPDATE postbox_spools SET version = version + 1 WHERE id = ?", w.id)(tx)
	}))
}

func (w *world) in(query string, args ...any) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(w.ctx, w.db.Bind(query), args...)
		return err
	}
}

// pause pauses the spool now and then, and resumes it.
func (w *world) pause() {
	if !w.paused && rapid.IntRange(0, 3).Draw(w.T, "pause") > 0 {
		return
	}
	w.paused = !w.paused
	at := sql.NullInt64{Int64: 1, Valid: w.paused}
	w.say(w.in("UPDATE postbox_spools SET paused_at = ? WHERE id = ?", at, w.id))
}

func (w *world) pauseKey() {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.T, "key")
	hash := keyhash.Of(key)
	if w.keys[key] = !w.keys[key]; w.keys[key] {
		w.say(w.in("INSERT INTO postbox_pauses (spool, key_hash, ordering_key, paused_at) VALUES (?, ?, ?, 1)", w.id, hash, []byte(key)))
	} else {
		w.say(w.in("DELETE FROM postbox_pauses WHERE spool = ? AND key_hash = ?", w.id, hash))
	}
}

// pauseTopic pauses a topic, or resumes it. From then on the order of a key counts within each
// topic alone.
func (w *world) pauseTopic() {
	topic := rapid.SampledFrom([]string{"x", "y"}).Draw(w.T, "topic")
	w.excluding = true
	if w.topics[topic] = !w.topics[topic]; w.topics[topic] {
		w.say(w.in("INSERT INTO postbox_topic_pauses (spool, topic, paused_at) VALUES (?, ?, 1)", w.id, topic))
	} else {
		w.say(w.in("DELETE FROM postbox_topic_pauses WHERE spool = ? AND topic = ?", w.id, topic))
	}
}

// unpark gives the parked messages all their attempts again.
func (w *world) unpark() {
	for _, m := range w.messages {
		if m.place == pending && m.parked && !w.isLocked(m) {
			m.parked, m.due, m.attempts, m.starts = false, true, 0, 0
			w.exec("UPDATE postbox_messages SET available_at = 0, attempts = 0, starts = 0 WHERE id = ?", m.id)
		}
	}
}

// takeAway makes a dead letter of a message that nobody handles, as an operator does.
func (w *world) takeAway() {
	for _, m := range w.messages {
		if m.place == pending && !w.running(m) && !w.isLocked(m) && (m.state == dialect.StateRetrying || rapid.IntRange(0, 2).Draw(w.T, "take away") == 0) {
			w.say(w.in("INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, ordering_key, key_hash, "+
				"payload, metadata, created_at, died_at, attempts) SELECT 0, ?, 'taken away', spool, '', topic, message_id, ordering_key, key_hash, "+
				"payload, metadata, created_at, created_at, attempts FROM postbox_messages WHERE id = ?", spool.MessageSubject(m.id, 0), m.id),
				w.in("DELETE FROM postbox_messages WHERE id = ?", m.id))
			m.place = dead
			w.learnIDs()
			return
		}
	}
}

func (w *world) running(m *modelMessage) bool {
	for _, p := range w.processes {
		for _, run := range p.runs {
			for _, e := range run.batch {
				if e.Message.Ref.ID == m.id {
					return true
				}
			}
		}
	}
	return false
}

// letter requeues a dead letter, or resolves it.
func (w *world) letter() {
	for _, m := range w.messages {
		if m.place != dead {
			continue
		}
		if m.resolved || rapid.IntRange(0, 2).Draw(w.T, "resolve") == 0 {
			if m.resolved {
				require.Error(w, enginetest.Requeue(w.ctx, w.db, w.spool, m.letter))
				continue
			}
			w.exec("UPDATE postbox_dead_letters SET resolved_at = 1 WHERE id = ?", m.letter)
			m.resolved = true
			return
		}
		begun := w.tick()
		require.NoError(w, enginetest.Requeue(w.ctx, w.db, w.spool, m.letter))
		*m = modelMessage{
			name: m.name, key: m.key, topic: m.topic, poison: m.poison, begun: begun, committed: w.tick(),
			place: pending, state: dialect.StateReady, due: true,
		}
		w.learnIDs()
		return
	}
}

// purge lets a cleaner delete what is old: here what is resolved, and all history.
func (w *world) purge() {
	w.exec("UPDATE postbox_history SET done_at = 0")
	w.exec("UPDATE postbox_dead_letters SET died_at = 0 WHERE resolved_at IS NOT NULL")
	c := cleanup.New(w.db.DB, w.statements, "cleaner", cleanup.Config{DeadLetters: time.Hour, History: true}, watermill.NopLogger{})
	for range 6 { // it goes round the spools
		require.True(w, c.Round(w.ctx))
	}
	for _, m := range w.messages {
		switch {
		case m.place == done:
			m.kept = false
		case m.place == dead && m.resolved:
			m.place = gone
		}
	}
}
