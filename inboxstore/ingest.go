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
// a context of its own: that of one delivery must not end the commit of others.
const ingestTimeout = 30 * time.Second

// ingest is where the messages of one queue come in. A delivery that arrives while a commit is under way waits in line, and the
// next commit takes all of them: as in the group commit of a database, there is no timer, and who is alone does not
// wait. When many wait, a second commit begins beside the first, so that the server works while the disk does; it leaves
// alone the keys that are in the first, whose messages keep the order in which they came. Each queue has a line of its own,
// since a statement appends to one spool, and a queue where something holds up a commit does not hold up the others.
//
// The commits are made by goroutines that end with the line, not by the deliveries in turn: any of them can leave
// when its context ends.
type ingest struct {
	inbox     *Store
	spool     *spool.Spool
	finder    *spool.Finder
	announcer *spool.Announcer

	mu         sync.Mutex
	line       []*entrant     // not yet in a commit
	keys       map[int64]bool // those in a commit, by their hash
	committing int            // commits
	closed     bool
	committer  sync.WaitGroup
}

// maxCommits is how many commits of a queue run at a time. More were not faster.
const maxCommits = 2

// secondCommit is how many must wait before a second commit begins. With less the two are small, and the
// server's work for a message grows by more than the wait for the disk shrinks.
const secondCommit = 28

// entrant is a message in line.
type entrant struct {
	spool.Arrival
	isCopy bool         // of one that is in the same commit
	stored chan outcome // has room for the one outcome, so the committer never waits for a delivery that has left
}

type outcome struct {
	fresh bool
	err   error
}

func newIngest(inbox *Store, queue *spool.Spool) *ingest {
	notifyThrough := inbox.core.DB
	if inbox.config.DisableNotify {
		notifyThrough = nil
	}
	return &ingest{
		inbox: inbox, spool: queue, keys: map[int64]bool{}, finder: spool.NewFinder(queue, inbox.core.DB),
		announcer: spool.NewAnnouncer(queue, notifyThrough, inbox.logger),
	}
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
		if outcome.fresh {
			in.inbox.remembered.add(e.Claim)
		}
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
	if in.committing == 0 || in.committing < in.most() && len(in.line) >= secondCommit {
		in.committing++
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
	in.finder.Close()
}

// most is maxCommits, but where writers take turns.
func (in *ingest) most() int {
	if in.inbox.core.Statements.Kind.Can().OneWriter {
		return 1
	}
	return maxCommits
}

// run commits until no delivery is in line, or too few for a second commit.
func (in *ingest) run() {
	for batch := in.next(nil); len(batch) > 0; batch = in.next(batch) {
		in.commitInTime(batch)
	}
}

func (in *ingest) commitInTime(batch []*entrant) {
	ctx, cancel := context.WithTimeout(context.Background(), ingestTimeout)
	defer cancel()
	in.commit(ctx, batch)
}

// next ends a commit, and takes from the line what fits into another one.
func (in *ingest) next(done []*entrant) (batch []*entrant) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range done {
		if key := e.KeyHash(); key != nil {
			delete(in.keys, *key)
		}
	}
	if in.committing == 1 || len(in.line) >= secondCommit {
		batch = in.takeFromLine()
	}
	if len(batch) == 0 {
		in.committing--
	}
	return batch
}

func (in *ingest) takeFromLine() (batch []*entrant) {
	var left []*entrant
	size := 0
	for i, e := range in.line {
		if key := e.KeyHash(); key != nil && in.keys[*key] {
			left = append(left, e)
			continue
		}
		size += e.Size()
		if len(batch) == in.inbox.core.Statements.MaxAppend || len(batch) > 0 && size > spool.MaxIngestBytes {
			left = append(left, in.line[i:]...)
			break
		}
		batch = append(batch, e)
	}
	for _, e := range batch {
		if key := e.KeyHash(); key != nil {
			in.keys[*key] = true
		}
	}
	in.line = left
	return batch
}

// commit stores a batch and tells each entrant. An error that may be the fault of one of them is pinned down by halves.
func (in *ingest) commit(ctx context.Context, batch []*entrant) {
	arrivals := distinct(batch)
	known, err := in.spool.Ingest(ctx, in.inbox.core.DB, in.inbox.core.Prepared, arrivals)
	switch {
	case err == nil:
		if len(known) < len(arrivals) {
			in.announcer.Announce()
		}
		in.committer.Go(func() { committed(batch, known) }) // beside the next commit, which waits for the database
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

// distinct leaves out copies, and marks them: two deliveries of one message may meet.
func distinct(batch []*entrant) []spool.Arrival {
	arrivals := make([]spool.Arrival, 0, len(batch))
	seen := make(map[string]bool, len(batch))
	for _, e := range batch {
		if e.isCopy = seen[string(e.Claim)]; !e.isCopy {
			seen[string(e.Claim)] = true
			arrivals = append(arrivals, e.Arrival)
		}
	}
	return arrivals
}

// committed tells all entrants of a commit what became of their messages.
func committed(batch []*entrant, known map[string]bool) {
	for _, e := range batch {
		e.stored <- outcome{fresh: !e.isCopy && !known[string(e.Claim)]}
	}
}

// concernsAll tells an error of the database as a whole from one that may be a single message's fault. One without
// the server's code may be either: a packet too large for the server ends the connection, as an outage does. Then
// what counts is whether the database is there.
func (in *ingest) concernsAll(ctx context.Context, err error) bool {
	switch in.inbox.core.Statements.Kind.Classify(err) {
	case dialect.Unavailable, dialect.Conflict, dialect.MissingTable:
		return true
	case dialect.Interrupted, dialect.Other:
	}
	if ctx.Err() != nil || errors.Is(err, spool.ErrLanes) {
		return true
	}
	return !dialect.Coded(err) && in.inbox.core.DB.PingContext(ctx) != nil
}
