package drain

import (
	"maps"
	"time"
)

// A transaction may take an id early and commit late, so the highest id seen says nothing about
// lower ids. A drainer that continued from there could read a message that was written after the
// late transaction committed, and would handle it first. Reading from the beginning each time is
// safe and slow: the index is full of entries of deleted messages, and PostgreSQL keeps them for as
// long as any transaction is open.
//
// watermark finds the id below which no more messages can appear. Now and then a read sets a mark.
// A mark is the highest id given to a message so far, and a transaction that starts after that. A
// transaction that took an id up to the mark had its own number by then (postgres_rows.go ensures
// that), and its number is lower. If a read's snapshot shows that all transactions before the mark
// have ended, the read sees the messages that they left. From then on the mark is final. If a
// drainer has a backlog, a mark is far ahead of it, so the drainer reads each message once.
//
// Nothing ever waits for the watermark, and no transaction holds it back for long:
//
//   - An unrelated transaction, of any database of the server, is recognised by its locks. INSERT
//     locks the table until the transaction ends. A transaction that has no such lock after the
//     mark was set has no id up to the mark. It counts only if it is still running in a later
//     snapshot: one that ends gives up its lock and its number one after the other.
//   - A transaction that does have the lock is passed as well, after some patience, and watched:
//     see late.go.
//
// On SQLite there is one writer at a time, and each read is a watermark.
//
// MariaDB does not tell which transactions are running. There each transaction that stores messages
// holds one of a few rows by a shared lock, from before it takes ids until it ends. Once each of
// the rows has been found free after the mark, each transaction that had an id up to it has ended.
// The mark is the highest id that is seen, or stored among the last ones given: a crash may set the
// counter back to the last committed id. A transaction that stays open after it stored messages
// does hold back the watermark; no other does. On MySQL, and on a cluster whose nodes do not see
// each other's locks, there is no watermark and reads start at 0.
type watermark struct {
	pendingMark
	mark   int64 // highest id given when the mark was set
	read   int   // messages read since the mark was set
	newest int64 // highest id seen
	given  int64 // highest id given, as the last read told it
	safe   int64 // nothing can appear up to this id, except messages of late transactions
	markAt time.Time
	late   late

	// covered is the id up to which no further mark is needed, marked was the highest id given when
	// the last mark was set.
	covered, marked int64
	// marks is the number of marks that have been set, final the number of the last one that has
	// become final.
	marks, final int
	asking
}

// pendingMark is a mark that is not final.
type pendingMark struct {
	pending bool
	next    int64 // the transaction of the mark
	setAt   time.Time
	running []int64         // running transactions that began before the mark and may have left messages up to it
	writers map[uint32]bool // transactions that had the lock when the database was asked; nil before the answer
	free    map[int64]bool  // rows that were found free, on databases that use such rows
}

// asking is when the database is asked which transactions have written.
type asking struct {
	askAt time.Time // earliest time of the next query
	// Transactions below long have been running for at least askPatience. Transactions below
	// longNext had begun at longAt; if they are still running askPatience later, they are long too.
	long, longNext int64
	longAt         time.Time
}

// A mark takes a transaction id on PostgreSQL, so there is at most one mark in markInterval. There
// may be one earlier after markMessages messages, a quarter of a page of the default size: a read
// passes over all messages that are beyond the last mark but one and were read before.
const (
	markInterval = 20 * time.Millisecond
	markMessages = 500
)

// The database is asked which transactions have written when a transaction has kept a mark pending
// for askPatience, or immediately if that transaction did so before. The query reads the server's
// table of locks, so there is at most one in askInterval, and they take at most a twentieth of the
// time.
const (
	askPatience = 100 * time.Millisecond
	askInterval = 50 * time.Millisecond
	askShare    = 20
)

// unset reports whether no mark has been set yet.
func (h *watermark) unset() bool { return h.markAt.IsZero() }

// wantsMark reports whether the next read should set a mark. No mark is set while no new messages
// appear, whether reads return them or leave them out.
func (h *watermark) wantsMark(now time.Time) bool {
	return !h.pending && h.lags() && (h.read >= markMessages || !now.Before(h.markAt))
}

// lags reports whether messages have appeared since the last mark.
func (h *watermark) lags() bool { return h.newest > h.mark || h.given > h.covered }

// lookBack is the number of the last ids among which MariaDB looks for the highest one that is
// stored. It looks at no more, however many messages wait, or were removed.
const lookBack = 1000

// lookFrom returns the id from which on MariaDB looks, or 0 if that is not known yet.
func (h *watermark) lookFrom() int64 {
	if h.given == 0 {
		return 0
	}
	return max(h.given-lookBack, 1)
}

// set sets the mark of the read that was observed last: this id, or the highest one seen. On
// MariaDB it is an id that is stored, and transactions that are open may store higher ones, so one
// more mark is needed after it.
func (h *watermark) set(next, id int64, running []int64, now time.Time) {
	h.pending, h.next, h.mark, h.read, h.markAt = true, next, max(id, h.newest), 0, now.Add(markInterval)
	h.covered, h.marked = max(h.mark, h.marked), h.given
	h.setAt, h.writers, h.free = now, nil, nil
	h.marks++
	h.running = h.concerned(running)
	if now.Sub(h.longAt) >= askPatience {
		h.long, h.longNext, h.longAt = h.longNext, next, now
	}
}

// observe processes a read with this number of messages, in whose snapshot these transactions were
// running. It returns the id up to which no more messages can appear, except those of late
// transactions.
func (h *watermark) observe(running []int64, newest int64, messages int, now time.Time) (safe int64) {
	h.read += messages
	if h.pending {
		h.running = h.concerned(running)
		if len(h.running) > 0 && h.writers != nil && now.Sub(h.setAt) >= h.late.waits() {
			h.late.watch(h.running, h.safe)
			h.running = nil
		}
		if len(h.running) == 0 {
			h.safe, h.pending, h.final = h.mark, false, h.marks
		}
	}
	h.newest = max(h.newest, newest)
	return h.safe
}

// concerned returns the running transactions that may have left messages up to the mark and are not
// watched.
func (h *watermark) concerned(running []int64) []int64 {
	var concerned []int64
	for _, transaction := range running {
		unrelated := h.writers != nil && !h.writers[uint32(transaction)] //nolint:gosec // only the low bits count
		if transaction < h.next && !unrelated && !h.late.watches(transaction) {
			concerned = append(concerned, transaction)
		}
	}
	return concerned
}

// wantsWriters reports whether the database should be asked which transactions have written. It is
// not asked while only short transactions run. The first mark is urgent: until it is final, each
// read starts at the beginning.
func (h *watermark) wantsWriters(now time.Time) bool {
	if !h.pending || h.writers != nil || len(h.running) == 0 || now.Before(h.askAt) {
		return false
	}
	known := true
	for _, transaction := range h.running {
		known = known && transaction < h.long
	}
	return known || h.safe == 0 || now.Sub(h.setAt) >= askPatience
}

// answer takes in which transactions have written. The query was sent after the mark was set.
func (h *watermark) answer(writers map[uint32]bool, now time.Time, took time.Duration) {
	h.writers = writers
	h.asked(now, took)
}

// answerFree takes in which of the rows no transaction holds. When each row has been free once, no
// transaction from before the mark can still have written.
func (h *watermark) answerFree(free map[int64]bool, groups int, now time.Time, took time.Duration) {
	if h.free == nil {
		h.free = map[int64]bool{}
	}
	maps.Copy(h.free, free)
	if len(h.free) == groups {
		h.writers = map[uint32]bool{}
	}
	h.asked(now, took)
}

// asked plans the next query.
func (h *watermark) asked(now time.Time, took time.Duration) {
	h.askAt = now.Add(max(askInterval, askShare*took))
}
