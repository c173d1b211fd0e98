package drain

import (
	"maps"
	"time"
)

// A transaction may take an id early and commit late, so the highest id seen says nothing about the ones below
// it. A drain that went on from there would meet a message that was written after the late one committed, and
// would handle it first. Reading from the beginning each time is safe and slow: the index is full of entries of
// deleted messages, and PostgreSQL keeps them for as long as any transaction is open.
//
// watermark finds the id below which nothing can appear any more. Now and then a read sets a mark: the highest id
// given to a message so far, and a transaction that starts after that. A transaction that took an id up to the mark
// had its own number by then (postgres_rows.go sees to that), which is lower. A read in whose snapshot all
// transactions before the mark have ended sees the messages that they left, and from then on the mark is final.
// A mark is far ahead of a drain that has a backlog before it, which then reads each message once.
//
// Nothing ever waits for the watermark, and no transaction holds it back for long:
//
//   - An unrelated transaction, of any database of the server, is told by its locks. INSERT locks the table until the
//     transaction ends. A transaction that has no such lock after the mark was set has no id up to the mark. It counts
//     only if it is still running in a later snapshot: one that ends gives up its lock and its number one after the other.
//   - A transaction that does have the lock is passed as well, after some patience, and watched: see late.go.
//
// On SQLite writers take turns and each read is a watermark.
//
// MariaDB does not tell which transactions run. There each one that stores messages holds one of a few rows by a shared lock, from before it
// takes ids until it ends. Once each of the rows has been found free after the mark, each transaction that had an id up to it has ended. The
// mark is the highest id seen. A transaction that stays open after it stored messages does hold back the watermark; no other does.
// On MySQL, and on a cluster whose nodes do not see each other's locks, there is no watermark and reads start at 0.
type watermark struct {
	pending bool
	next    int64 // the transaction of the mark
	mark    int64 // highest id given by then
	read    int   // messages read since
	newest  int64 // highest id seen
	safe    int64 // nothing can appear up to here, but for the late ones
	markAt  time.Time
	late    late

	// Of the pending mark:
	setAt   time.Time
	running []int64         // transactions before it that run and may have left messages up to it
	writers map[uint32]bool // transactions that had the lock when the database was asked; nil before that
	free    map[int64]bool  // rows that were found free, where those tell

	askAt time.Time // earliest time of the next question
	// Transactions before long have been running for a while; from longAt on those before longNext will have.
	long, longNext int64
	longAt         time.Time
}

// A mark takes a transaction id on PostgreSQL, so there is one in markInterval at most, unless as much was read since as
// markMessages, a quarter of a page of the default size: a read passes over all that stands beyond the last mark but one
// and was read before.
const (
	markInterval = 20 * time.Millisecond
	markMessages = 500
)

// The database is asked who writes when a transaction has kept a mark pending for askPatience, or at once where that
// transaction did so before. It reads the server's table of locks, so there is one question in askInterval at most, and at most
// a twentieth of the time.
const (
	askPatience = 100 * time.Millisecond
	askInterval = 50 * time.Millisecond
	askShare    = 20
)

// unset says that there was no mark yet.
func (h *watermark) unset() bool { return h.markAt.IsZero() }

// wantsMark says whether the next read shall set a mark: not while nothing new comes.
func (h *watermark) wantsMark(now time.Time) bool {
	return !h.pending && h.newest > h.mark && (h.read >= markMessages || !now.Before(h.markAt))
}

// set sets the mark of the read that was observed last. A database with one writer does not tell what it has given: there
// it is what was seen.
func (h *watermark) set(next, given int64, running []int64, now time.Time) {
	h.pending, h.next, h.mark, h.read, h.markAt = true, next, max(given, h.newest), 0, now.Add(markInterval)
	h.setAt, h.writers, h.free = now, nil, nil
	h.running = h.concerned(running)
	if now.Sub(h.longAt) >= askPatience {
		h.long, h.longNext, h.longAt = h.longNext, next, now
	}
}

// observe takes in a read of so many messages, in whose snapshot these transactions were running, and returns the id up to
// which nothing can appear after it, but for the late ones.
func (h *watermark) observe(running []int64, newest int64, messages int, now time.Time) (safe int64) {
	h.read += messages
	if h.pending {
		h.running = h.concerned(running)
		if len(h.running) > 0 && h.writers != nil && now.Sub(h.setAt) >= h.late.waits() {
			h.late.watch(h.running, h.safe)
			h.running = nil
		}
		if len(h.running) == 0 {
			h.safe, h.pending = h.mark, false
		}
	}
	h.newest = max(h.newest, newest)
	return h.safe
}

// concerned returns those of the running transactions that may have left messages up to the mark and are not watched.
func (h *watermark) concerned(running []int64) []int64 {
	var concerned []int64
	for _, transaction := range running {
		unrelated := h.writers != nil && !h.writers[uint32(transaction)] //nolint:gosec // the low bits are meant
		if transaction < h.next && !unrelated && !h.late.watches(transaction) {
			concerned = append(concerned, transaction)
		}
	}
	return concerned
}

// wantsWriters says whether the database shall be asked which transactions have written: not while only short ones run.
// The first mark has no time to lose, since until it is final each read starts at the beginning.
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

// answer takes in which transactions have written. The question was asked after the mark was set.
func (h *watermark) answer(writers map[uint32]bool, now time.Time, took time.Duration) {
	h.writers = writers
	h.asked(now, took)
}

// answerFree takes in which of so many rows no transaction holds. When each was free once, none of before the mark has written.
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

// asked plans the next question.
func (h *watermark) asked(now time.Time, took time.Duration) {
	h.askAt = now.Add(max(askInterval, askShare*took))
}
