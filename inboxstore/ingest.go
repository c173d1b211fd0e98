package inboxstore

import (
	"context"
	"errors"
	"slices"
	"sync"
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
// wait. There is one commit at a time, so it needs one connection. Each queue has a line of its own, since a statement
// appends to one spool, and a queue where something holds up a commit does not hold up the others.
//
// The commits are made by a goroutine that ends with the line, not by the deliveries in turn: any of them can leave
// when its context ends.
type ingest struct {
	inbox     *Store
	spool     *spool.Spool
	announcer *spool.Announcer

	mu         sync.Mutex
	line       []*entrant // not yet in a commit
	committing bool
	closed     bool
	committer  sync.WaitGroup
}

// entrant is a message in line.
type entrant struct {
	spool.Arrival
	stored chan outcome // has room for the one outcome, so nobody waits for whoever left
}

type outcome struct {
	fresh bool
	err   error
}

func newIngest(inbox *Store, queue *spool.Spool) *ingest {
	notifyThrough := inbox.db
	if inbox.config.DisableNotify {
		notifyThrough = nil
	}
	return &ingest{inbox: inbox, spool: queue, announcer: spool.NewAnnouncer(queue, notifyThrough, inbox.logger)}
}

// store returns when the message has been committed, or ctx ends.
func (in *ingest) store(ctx context.Context, arrival spool.Arrival) (fresh bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e := &entrant{Arrival: arrival, stored: make(chan outcome, 1)}
	if !in.enter(e) {
		return false, postbox.ErrClosed
	}
	select {
	case outcome := <-e.stored:
		return outcome.fresh, outcome.err
	case <-ctx.Done():
		in.leave(e)
		return false, ctx.Err()
	}
}

func (in *ingest) enter(e *entrant) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return false
	}
	in.line = append(in.line, e)
	if !in.committing {
		in.committing = true
		in.committer.Go(in.run)
	}
	return true
}

func (in *ingest) leave(e *entrant) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.line = slices.DeleteFunc(in.line, func(other *entrant) bool { return other == e })
}

// close waits for the line to be stored. It can be called twice.
func (in *ingest) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.committer.Wait()
	in.announcer.Close()
}

// run commits until nobody is in line.
func (in *ingest) run() {
	for batch := in.next(); len(batch) > 0; batch = in.next() {
		in.commitInTime(batch)
	}
}

func (in *ingest) commitInTime(batch []*entrant) {
	ctx, cancel := context.WithTimeout(context.Background(), ingestTimeout)
	defer cancel()
	in.commit(ctx, batch)
}

// next takes from the line what fits into one commit.
func (in *ingest) next() []*entrant {
	in.mu.Lock()
	defer in.mu.Unlock()
	n, size := 0, 0
	for n < len(in.line) && n < in.inbox.statements.MaxAppend {
		size += in.line[n].Size()
		if n > 0 && size > spool.MaxIngestBytes {
			break
		}
		n++
	}
	batch := slices.Clone(in.line[:n])
	in.line = slices.Delete(in.line, 0, n)
	in.committing = n > 0
	return batch
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
