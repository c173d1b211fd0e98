package drain

import (
	"database/sql"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// modelLog is the log of the database: what transactions inserted, in the order of their commits. One process at a time
// receives it.
type modelLog struct {
	logged   map[int64]bool
	waits    []tail.Message // not received yet
	receiver *modelProcess
}

func newModelLog() *modelLog { return &modelLog{logged: map[int64]bool{}} }

// newFeed returns a feed that is soon full.
func (w *world) newFeed() *tail.Feed {
	return tail.NewFeed(tail.Limits{
		Messages: rapid.IntRange(2, 8).Draw(w.T, "feed"), Inline: 1 << 10, Bytes: 1 << 20,
	})
}

// logCommit adds to the log what was committed since the last call: by this transaction, or by one without savepoints.
func (w *world) logCommit(transaction int64) {
	if w.wal == nil {
		return
	}
	w.query("SELECT xmin::text::bigint, spool, id, created_at, lane, key_hash, topic, message_id, ordering_key, payload, metadata FROM ONLY postbox_messages ORDER BY id",
		func(scan func(...any) error) error {
			var m tail.Message
			var id int64
			var hash sql.NullInt64
			var name, key []byte
			if err := scan(&id, &m.Spool, &m.ID, &m.CreatedAt, &m.Lane, &hash, &m.Topic, &name, &key, &m.Payload, &m.Metadata); err != nil {
				return err
			}
			if transaction != 0 {
				id = transaction
			}
			m.Transaction = uint32(id) //nolint:gosec // the low bits are meant
			m.HasKey, m.KeyHash, m.MessageID, m.Key = hash.Valid, hash.Int64, string(name), string(key)
			m.Size = len(m.Payload) + len(m.Metadata)
			if !w.wal.logged[m.ID] {
				w.wal.logged[m.ID] = true
				w.wal.waits = append(w.wal.waits, m)
			}
			return nil
		})
}

// receive lets the receiver have a part of the log. Without a receiver, or with one that has failed meanwhile, it is lost.
func (w *world) receive() {
	if len(w.wal.waits) == 0 {
		return
	}
	n := rapid.IntRange(1, len(w.wal.waits)).Draw(w.T, "received")
	for _, m := range w.wal.waits[:n] {
		if p := w.wal.receiver; p != nil {
			p.log("receives %s", m.MessageID)
			p.d.configured.Feed.Add(m)
		}
	}
	w.wal.waits = w.wal.waits[n:]
}

// followLog lets a process come to the end of a gap, as it does within milliseconds, and its feed have what is new,
// mostly before a poll.
func (p *modelProcess) followLog() {
	if p.wal == nil {
		return
	}
	if p.wal.receiver == nil && rapid.IntRange(0, 3).Draw(p.T, "receiver") > 0 {
		p.changeReceiver()
	}
	p.logCommit(0)
	switch {
	case p.d.tailing.gap && rapid.IntRange(0, 7).Draw(p.T, "gap") > 0:
		p.d.pollAt, p.d.watermark.markAt = time.Time{}, time.Time{}
	case p.d.tailing.open && rapid.IntRange(0, 3).Draw(p.T, "open") > 0:
		p.d.pollAt = time.Now().Add(time.Hour)
		p.receive()
	}
}

// follow lets messages come through the log, if the receiver has come to the end of its gap within three polls.
func (w *world) follow() {
	p := w.wal.receiver
	if p == nil || p.stepping {
		return
	}
	for i := 0; i < 3 && !p.d.tailing.open; i++ {
		p.d.pollAt, p.d.watermark.markAt = time.Time{}, time.Time{}
		p.stepNow()
	}
	w.append()
	w.logCommit(0)
	w.receive()
	if p.d.tailing.open {
		p.d.pollAt = time.Now().Add(time.Hour)
	}
	p.stepNow()
}

// changeReceiver makes another process the receiver, or none.
func (w *world) changeReceiver() {
	if p := w.wal.receiver; p != nil {
		p.d.configured.Feed.End()
		w.wal.receiver = nil
	}
	if len(w.processes) == 0 || rapid.IntRange(0, 3).Draw(w.T, "receiver") == 3 {
		return
	}
	var server string
	require.NoError(w, w.db.DB.QueryRowContext(w.ctx, w.statements.LogServer).Scan(&server, new(string), new(string)))
	p := w.processes[rapid.IntRange(0, len(w.processes)-1).Draw(w.T, "process")]
	p.d.configured.Feed.Begin(server)
	w.wal.receiver = p
}
