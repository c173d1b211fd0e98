package inboxstore

import (
	"slices"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// line is where messages wait while a commit is under way. There is one commit at a time, so it needs one connection.
//
// The commits are made by a goroutine that ends with the line, not by the deliveries in turn: any of them can leave
// when its context ends.
type line struct {
	most   int // in a commit
	commit func(batch []*entrant)

	mu         sync.Mutex
	waiting    []*entrant
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

// enter reports false when the line is closed.
func (l *line) enter(e *entrant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.waiting = append(l.waiting, e)
	if !l.committing {
		l.committing = true
		l.committer.Go(l.run)
	}
	return true
}

func (l *line) leave(e *entrant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *entrant) bool { return other == e })
}

// close takes nobody more, and waits until the line is empty.
func (l *line) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.committer.Wait()
}

// run commits until nobody is in line.
func (l *line) run() {
	for batch := l.next(); len(batch) > 0; batch = l.next() {
		l.commit(batch)
	}
}

// next takes from the line what fits into one commit.
func (l *line) next() []*entrant {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, size := 0, 0
	for n < len(l.waiting) && n < l.most {
		size += l.waiting[n].Size()
		if n > 0 && size > spool.MaxIngestBytes {
			break
		}
		n++
	}
	batch := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.committing = n > 0
	return batch
}
