package spool

import "time"

// A transaction may take an id early and commit late, so the highest id seen says nothing about the ones below
// it. A drain that went on from there would meet a message that was written after the late one committed, and
// would handle it first. Reading from the beginning each time is safe and slow: the index is full of entries of
// deleted messages.
//
// horizon finds the id below which nothing can appear any more. Now and then a read sets a mark: the highest id
// given to a message so far, and a transaction that starts after that. Whoever took an id up to the mark had
// a transaction by then (postgres.go sees to that), and so an earlier one; once a read meets none that is earlier
// and still runs, all of them have ended, and that read, in whose snapshot they have, sees what they left. A mark is far
// ahead of a drain that has a backlog before it, which then reads each message once. Nothing ever waits for the
// horizon: while a long transaction holds it back, reads start further down, that is all.
//
// On SQLite writers take turns and each read is a horizon; on MySQL there is none and reads start at 0.
type horizon struct {
	pending bool
	next    int64 // the transaction of the mark
	mark    int64 // highest id given by then
	read    int   // messages read since
	newest  int64 // highest id seen
	safe    int64 // nothing can appear up to here
	markAt  time.Time
}

// A mark takes a transaction id on PostgreSQL, so there is one in markInterval at most, unless as much was read since as
// markMessages, a quarter of a page of the default size: a read passes over all that stands beyond the last mark but one
// and was read before.
const (
	markInterval = 20 * time.Millisecond
	markMessages = 500
)

// blank says that there was no mark yet.
func (h *horizon) blank() bool { return h.markAt.IsZero() }

// wantsMark says whether the next read shall set a mark: not while nothing new comes.
func (h *horizon) wantsMark(now time.Time) bool {
	return !h.pending && h.newest > h.mark && (h.read >= markMessages || !now.Before(h.markAt))
}

// set sets the mark of the read that was observed last. A database with one writer does not tell what it has given: there
// it is what was seen.
func (h *horizon) set(next, given int64, now time.Time) {
	h.pending, h.next, h.mark, h.read, h.markAt = true, next, max(given, h.newest), 0, now.Add(markInterval)
}

// observe takes in a read of so many messages and returns the id up to which nothing can appear after it.
func (h *horizon) observe(lowest, newest int64, messages int) (safe int64) {
	h.read += messages
	if h.pending && lowest >= h.next {
		h.safe, h.pending = h.mark, false
	}
	h.newest = max(h.newest, newest)
	return h.safe
}
