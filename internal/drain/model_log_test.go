package drain

import (
	"time"

	"pgregory.net/rapid"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// modelLog is the log of the database: what transactions inserted, in the order of their commits.
// One process at a time receives it.
type modelLog struct {
	logged   map[int64]bool
	waits    []tail.Change // not received yet
	receiver *modelProcess
}

func newModelLog() *modelLog { return &modelLog{logged: map[int64]bool{}} }

// logCommit adds to the log what was committed since the last call: by this transaction, or by one
// without savepoints.
func (w *world) logCommit(transaction int64) {
	if w.wal == nil {
		return
	}
	w.query("SELECT xmin::text::bigint, spool, lane, id FROM ONLY postbox_messages ORDER BY id",
		func(scan func(...any) error) error {
			var id, message int64
			c := tail.Change{Message: true}
			if err := scan(&id, &c.Spool, &c.Lane, &message); err != nil {
				return err
			}
			if transaction != 0 {
				id = transaction
			}
			c.Transaction = uint32(id) //nolint:gosec // the low bits are meant
			if !w.wal.logged[message] {
				w.wal.logged[message] = true
				w.wal.waits = append(w.wal.waits, c)
			}
			return nil
		})
}

// receive lets the receiver have a part of the log. Without a receiver, or with one that has failed
// meanwhile, it is lost.
func (w *world) receive() {
	if len(w.wal.waits) == 0 {
		return
	}
	n := rapid.IntRange(1, len(w.wal.waits)).Draw(w.T, "received")
	for _, c := range w.wal.waits[:n] {
		if p := w.wal.receiver; p != nil {
			p.log("hears of transaction %d", c.Transaction)
			p.d.configured.Feed.Add(c)
		}
	}
	w.wal.waits = w.wal.waits[n:]
}

// followLog lets a process poll only when its feed tells it to, mostly.
func (p *modelProcess) followLog() {
	if p.wal == nil {
		return
	}
	if p.wal.receiver == nil && rapid.IntRange(0, 3).Draw(p.T, "receiver") > 0 {
		p.changeReceiver()
	}
	p.logCommit(0)
	if p.wal.receiver == p && rapid.IntRange(0, 3).Draw(p.T, "told") > 0 {
		p.d.pace.at = time.Now().Add(time.Hour)
		p.receive()
	}
}

// follow lets the log tell of messages.
func (w *world) follow() {
	p := w.wal.receiver
	if p == nil || p.stepping {
		return
	}
	w.append()
	w.logCommit(0)
	w.receive()
	p.d.pace.at = time.Now().Add(time.Hour)
	p.stepNow()
}

// changeReceiver makes another process the receiver, or none.
func (w *world) changeReceiver() {
	if p := w.wal.receiver; p != nil {
		p.d.configured.Feed.Begin()
		w.wal.receiver = nil
	}
	if len(w.processes) == 0 || rapid.IntRange(0, 3).Draw(w.T, "receiver") == 3 {
		return
	}
	p := w.processes[rapid.IntRange(0, len(w.processes)-1).Draw(w.T, "process")]
	p.d.configured.Feed.Begin()
	w.wal.receiver = p
}
