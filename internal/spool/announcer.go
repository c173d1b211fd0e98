package spool

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// notifyInterval is the minimum time between two NOTIFYs of one announcer. Each NOTIFY takes a lock
// of the whole cluster while it commits, so a process should send only a few each second. Polling
// finds the other messages.
const notifyInterval = 250 * time.Millisecond

// Announcer tells drainers that messages were committed. It wakes drainers of this process
// directly, and drainers of other processes by NOTIFY if the database has it. It is safe for
// concurrent use.
type Announcer struct {
	spool  *Spool
	db     *sql.DB
	logger watermill.LoggerAdapter
	// Within ends the statements, so that Close need not wait for them.
	Within context.Context //nolint:containedctx // of the goroutine that makes them

	mu      sync.Mutex
	pending bool
	running bool
	closed  bool
	stop    chan struct{}
	done    sync.WaitGroup
}

// NewAnnouncer returns an announcer for a spool. With a nil db it wakes only the drainers of this
// process.
func NewAnnouncer(spool *Spool, db *sql.DB, logger watermill.LoggerAdapter) *Announcer {
	return &Announcer{spool: spool, db: db, logger: logger, Within: context.Background(), stop: make(chan struct{})}
}

// Announce is called after a commit. It does not wait for the database.
func (a *Announcer) Announce() {
	a.spool.Wake()
	a.Notify()
}

// Notify wakes the drainers of other processes alone.
func (a *Announcer) Notify() {
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

// run notifies until no announcement is pending, with a pause between two notifications.
func (a *Announcer) run() {
	for a.next() {
		if err := a.spool.Notify(a.Within, a.db); err != nil {
			a.logger.Debug("Postbox could not notify other processes, which will find the messages when they poll", watermill.LogFields{"err": LogText(err)})
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

// Announce wakes the drainers of the spool once. It is for code that commits now and then and has
// no [Announcer]. It waits for the database. An error loses no message, since drainers poll.
func (s *Spool) Announce(ctx context.Context, db *sql.DB) error {
	s.Wake()
	return s.Notify(ctx, db)
}

// Notify wakes the drainers of other processes. It waits for the database. An error loses no
// message, since drainers poll.
func (s *Spool) Notify(ctx context.Context, db *sql.DB) error {
	if !s.Statements.Notifies() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StatementTimeout)
	defer cancel()
	return Run(ctx, db, s.Statements.Notify(s.Channel()))
}
