package inboxstore

import (
	"context"
	"errors"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ingestTimeout bounds a commit, with all that is done to save those in it who are not to blame for an error. It is
// nobody's context: that of one delivery must not end the commit of others.
const ingestTimeout = 30 * time.Second

// ingest is where the messages of one queue come in. Whoever comes while a commit is under way waits in line, and the
// next commit takes all of them: as in the group commit of a database, there is no timer, and who is alone does not
// wait. Each queue has lines of its own, since a statement appends to one spool, and a queue where something holds up a
// commit does not hold up the others.
type ingest struct {
	inbox     *Store
	spool     *spool.Spool
	announcer *spool.Announcer
	lines     []*line
}

// linesAtMost lets one commit be under way at the server while another one is made here, which takes about as long. More
// of them would be smaller ones.
const linesAtMost = 2

// newIngest gives SQLite one line, since it commits one transaction at a time.
func newIngest(inbox *Store, queue *spool.Spool) *ingest {
	notifyThrough := inbox.db
	if inbox.config.DisableNotify {
		notifyThrough = nil
	}
	in := &ingest{inbox: inbox, spool: queue, announcer: spool.NewAnnouncer(queue, notifyThrough, inbox.logger)}
	lines := min(linesAtMost, inbox.config.Lanes)
	if inbox.config.Dialect == postbox.SQLite {
		lines = 1
	}
	for range lines {
		in.lines = append(in.lines, &line{most: inbox.statements.MaxAppend, commit: in.commitInTime})
	}
	return in
}

// store returns when the message has been committed, or ctx ends. Messages of a key are in one line, and so are stored in
// the order in which they came.
func (in *ingest) store(ctx context.Context, arrival spool.Arrival) (fresh bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e := &entrant{Arrival: arrival, stored: make(chan outcome, 1)}
	l := in.lines[arrival.Lane()%len(in.lines)]
	if !l.enter(e) {
		return false, postbox.ErrClosed
	}
	select {
	case outcome := <-e.stored:
		return outcome.fresh, outcome.err
	case <-ctx.Done():
		l.leave(e)
		return false, ctx.Err()
	}
}

// close waits for the lines to be stored. It can be called twice.
func (in *ingest) close() {
	for _, l := range in.lines {
		l.close()
	}
	in.announcer.Close()
}

func (in *ingest) commitInTime(batch []*entrant) {
	ctx, cancel := context.WithTimeout(context.Background(), ingestTimeout)
	defer cancel()
	in.commit(ctx, batch)
}

// commit stores a batch and tells each entrant. An error that may be the fault of one of them is pinned down by halves.
func (in *ingest) commit(ctx context.Context, batch []*entrant) {
	arrivals := distinct(batch)
	known, err := in.spool.Ingest(ctx, in.inbox.db, in.inbox.prepared, arrivals)
	switch {
	case err == nil:
		if len(known) < len(arrivals) {
			in.announcer.Announce()
		}
		in.committed(batch, known)
	case len(batch) == 1 || in.concernsAll(ctx, err):
		for _, e := range batch {
			e.stored <- outcome{err: err}
		}
	default:
		half := len(batch) / 2
		in.commit(ctx, batch[:half])
		in.commit(ctx, batch[half:])
	}
}

// distinct leaves out copies: two deliveries of one message may meet.
func distinct(batch []*entrant) []spool.Arrival {
	arrivals := make([]spool.Arrival, 0, len(batch))
	seen := make(map[string]bool, len(batch))
	for _, e := range batch {
		if !seen[string(e.Claim)] {
			seen[string(e.Claim)] = true
			arrivals = append(arrivals, e.Arrival)
		}
	}
	return arrivals
}

// committed tells all entrants of a commit what became of their messages.
func (in *ingest) committed(batch []*entrant, known map[string]bool) {
	for _, e := range batch {
		fresh := !known[string(e.Claim)]
		known[string(e.Claim)] = true // to its copies
		if fresh && in.inbox.cache != nil {
			in.inbox.cache.Add(string(e.Claim), struct{}{})
		}
		e.stored <- outcome{fresh: fresh}
	}
}

// concernsAll tells an error of the database as a whole from one that may be a single message's fault. One without
// the server's code may be either: a packet too large for the server ends the connection, as an outage does. Then
// what counts is whether the database is there.
func (in *ingest) concernsAll(ctx context.Context, err error) bool {
	switch dialect.Classify(err) {
	case dialect.Unavailable, dialect.Conflict, dialect.MissingTable:
		return true
	case dialect.Other:
	}
	if ctx.Err() != nil || errors.Is(err, spool.ErrLanes) {
		return true
	}
	return !dialect.Coded(err) && in.inbox.db.PingContext(ctx) != nil
}
