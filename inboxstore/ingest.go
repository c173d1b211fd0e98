package inboxstore

import (
	"context"
	"slices"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ingestTimeout bounds a commit, including the search for a message in it that causes an error. The
// commit has a context of its own: the end of one delivery's context must not end the commit of
// others.
const ingestTimeout = 30 * time.Second

// ingest commits the incoming messages of one queue in groups. A delivery that arrives while a
// commit is running waits, and the next commit takes all waiting deliveries. As in the group commit
// of a database, there is no timer, and a lone delivery does not wait. When many deliveries wait, a
// second commit runs concurrently with the first, so that the server works while the disk does. It
// leaves out the keys that are in the first commit, so the messages of a key keep the order in
// which they arrived.
//
// Each message queue has an ingest of its own, because a statement appends to one spool. So a queue
// whose commit is held up does not hold up the others.
//
// Goroutines that end when no delivery waits make the commits. The deliveries do not make them in
// turn, because each delivery may leave when its context ends.
type ingest struct {
	name      string // of the queue
	inbox     *Store
	spool     *spool.Spool
	finder    *spool.Finder
	announcer *spool.Announcer
	meter     *meter.Spool

	mu         sync.Mutex
	waiting    []*entrant     // for a commit
	keys       map[int64]bool // hashes of the keys in running commits
	committing int            // number of running commits
	closed     bool
	committer  sync.WaitGroup
}

// maxCommits is the maximum number of commits of a queue that run at a time. More commits were not
// faster.
const maxCommits = 2

// secondCommit is the number of waiting deliveries that starts a second commit. With fewer, both
// commits are small: the server's work for each message grows by more than the wait for the disk
// shrinks.
const secondCommit = 28

// entrant is a delivery that waits for its commit.
type entrant struct {
	spool.Arrival
	isCopy bool         // another entrant of the same commit has the same message
	stored chan outcome // buffered for the one outcome, so the committer never waits for a delivery that has left
}

type outcome struct {
	fresh bool
	err   error
}

func newIngest(inbox *Store, name string) *ingest {
	queue := inbox.core.Spool(name)
	notifyThrough := inbox.core.DB
	if inbox.config.DisableNotify {
		notifyThrough = nil
	}
	return &ingest{
		name: name, inbox: inbox, spool: queue, keys: map[int64]bool{}, finder: spool.NewFinder(queue, inbox.core.DB),
		announcer: spool.NewAnnouncer(queue, notifyThrough, inbox.logger), meter: meter.Of(inbox.core.Metrics, queue.Name(), inbox.logger),
	}
}

// measure reports a delivery.
func (in *ingest) measure(key Key, fresh bool, err error) {
	in.inbox.core.Deliveries.Delivered(key.Consumer, key.Topic, meter.Stored, fresh, err)
	if fresh && err == nil {
		in.meter.Stored(in.name, 1)
	}
}

// store waits until the message has been committed, or ctx ends.
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
	in.waiting = append(in.waiting, e)
	if in.committing == 0 || in.committing < in.most() && len(in.waiting) >= secondCommit {
		in.committing++
		in.committer.Go(in.run)
	}
	return true
}

func (in *ingest) leave(e *entrant) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.waiting = slices.DeleteFunc(in.waiting, func(other *entrant) bool { return other == e })
}

// close waits until all waiting messages are stored. It can be called twice.
func (in *ingest) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.committer.Wait()
	in.announcer.Close()
	in.finder.Close()
}

// most is the maximum number of concurrent commits: one if the database has one writer, else
// maxCommits.
func (in *ingest) most() int {
	if in.inbox.core.Statements.Kind.Can().OneWriter {
		return 1
	}
	return maxCommits
}

// run commits until no delivery waits, or too few wait for a second commit.
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

// next ends a commit, and takes as many waiting deliveries as fit into the next one.
func (in *ingest) next(done []*entrant) (batch []*entrant) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, e := range done {
		if key := e.KeyHash(); key != nil {
			delete(in.keys, *key)
		}
	}
	if in.committing == 1 || len(in.waiting) >= secondCommit {
		batch = in.takeWaiting()
	}
	if len(batch) == 0 {
		in.committing--
	}
	return batch
}

func (in *ingest) takeWaiting() (batch []*entrant) {
	var left []*entrant
	size := 0
	for i, e := range in.waiting {
		if key := e.KeyHash(); key != nil && in.keys[*key] {
			left = append(left, e)
			continue
		}
		size += e.Size()
		if len(batch) == in.inbox.core.Statements.MaxAppend || len(batch) > 0 && size > spool.MaxIngestBytes {
			left = append(left, in.waiting[i:]...)
			break
		}
		batch = append(batch, e)
	}
	for _, e := range batch {
		if key := e.KeyHash(); key != nil {
			in.keys[*key] = true
		}
	}
	in.waiting = left
	return batch
}

// commit stores a batch and reports the result to each entrant. If a single message may have caused
// an error, commit finds it by halving the batch.
func (in *ingest) commit(ctx context.Context, batch []*entrant) {
	arrivals := distinct(batch)
	in.finder.Look() //nolint:contextcheck // the search goes on after the commit
	known, err := in.spool.Ingest(ctx, in.inbox.core.DB, in.inbox.core.Prepared, arrivals)
	switch {
	case err == nil:
		if len(known) < len(arrivals) {
			in.announcer.Announce()
		}
		in.committer.Go(func() { committed(batch, known) }) // concurrently with the next commit, which waits for the database
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

// distinct leaves out copies, and marks them: a batch may contain two deliveries of one message.
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

// committed reports to all entrants of a commit whether their messages are fresh.
func committed(batch []*entrant, known map[string]bool) {
	for _, e := range batch {
		e.stored <- outcome{fresh: !e.isCopy && !known[string(e.Claim)]}
	}
}

// concernsAll reports whether an error concerns the database as a whole. Otherwise a single message
// may have caused it. An error without the server's code may be either: a packet that is too large
// for the server ends the connection, as an outage does. In this case concernsAll asks whether the
// database is available.
func (in *ingest) concernsAll(ctx context.Context, err error) bool {
	switch in.inbox.core.Statements.Kind.Classify(err) {
	case dialect.Unavailable, dialect.Conflict, dialect.MissingTable:
		return true
	case dialect.Interrupted, dialect.Other:
	}
	if ctx.Err() != nil {
		return true
	}
	return !dialect.Coded(err) && in.inbox.core.DB.PingContext(ctx) != nil
}
