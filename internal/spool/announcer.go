package spool

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// notifyInterval is the shortest time between two NOTIFYs of one announcer. Each takes a lock of the whole
// cluster while it commits, so a few a second is what a process may spend; polling covers the rest.
const notifyInterval = 250 * time.Millisecond

// Announcer tells drainers that messages were committed: those of this process by a wake-up, those of others by
// NOTIFY where the database has it. It is safe for concurrent use.
type Announcer struct {
	spool  *Spool
	db     *sql.DB
	logger watermill.LoggerAdapter

	mu      sync.Mutex
	pending bool
	running bool
	closed  bool
	stop    chan struct{}
	done    sync.WaitGroup
}

// NewAnnouncer returns an announcer for a spool. A nil db wakes those of this process only.
func NewAnnouncer(spool *Spool, db *sql.DB, logger watermill.LoggerAdapter) *Announcer {
	return &Announcer{spool: spool, db: db, logger: logger, stop: make(chan struct{})}
}

// Announce is called after a commit. It does not wait for the database.
func (a *Announcer) Announce() {
	a.spool.Wake()
	if a.db == nil || !a.spool.Statements.Notifies() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending = true
	if a.running || a.closed {
		return
	}
	a.running = true
	a.done.Go(a.run)
}

// run notifies until nothing is pending, waiting between two.
func (a *Announcer) run() {
	for a.next() {
		if err := a.spool.Notify(context.Background(), a.db); err != nil {
			a.logger.Debug("Postbox could not notify, polling will find the messages", watermill.LogFields{"err": LogText(err)})
		}
		select {
		case <-a.stop:
		case <-time.After(notifyInterval):
		}
	}
}

func (a *Announcer) next() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.pending {
		a.running = false
		return false
	}
	a.pending = false
	return true
}

// Close waits for the last notification. It can be called twice.
func (a *Announcer) Close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.stop)
	}
	a.mu.Unlock()
	a.done.Wait()
}

// Announce wakes the drainers of the spool once. It is for code that commits now and then and has no [Announcer]. It waits
// for the database. An error loses nothing, since drainers poll.
func (s *Spool) Announce(ctx context.Context, db *sql.DB) error {
	s.Wake()
	return s.Notify(ctx, db)
}

// Notify wakes the drainers of other processes. It waits for the database; an error loses nothing, since drainers poll.
func (s *Spool) Notify(ctx context.Context, db *sql.DB) error {
	if !s.Statements.Notifies() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StatementTimeout)
	defer cancel()
	return Run(ctx, db, s.Statements.Notify(s.Channel()))
}
