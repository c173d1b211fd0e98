package inboxstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// lookEvery is how often a history is looked for again: an operator may have turned it off, or a
// backup was restored in which it has another id.
const lookEvery = 30 * time.Second

// histories are those of the consumers of a store.
type histories struct {
	store *Store

	mu     sync.Mutex
	byName map[string]*history
	life   context.Context //nolint:containedctx // the life of what looks in the background, which close ends
	end    context.CancelFunc
	looks  sync.WaitGroup
}

func newHistories(store *Store) *histories {
	h := &histories{store: store, byName: map[string]*history{}}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// of returns the history of a consumer, with how long its messages are kept from now on.
func (h *histories) of(consumer string, keep time.Duration) *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := h.byName[consumer]
	if found == nil {
		found = &history{of: h.store, name: spool.InboxName(consumer)}
		h.byName[consumer] = found
	}
	found.keep.Store(keep.Microseconds())
	return found
}

// close ends what looks in the background.
func (h *histories) close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.looks.Wait()
}

// inBackground runs a function, unless the store is closed.
func (h *histories) inBackground(run func(ctx context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Err() != nil {
		return
	}
	h.looks.Go(func() {
		ctx, cancel := context.WithTimeout(h.life, spool.StatementTimeout)
		defer cancel()
		run(ctx)
	})
}

// history is where the messages of one consumer are kept: the history of a spool that has no
// messages.
type history struct {
	of   *Store
	name string
	keep atomic.Int64 // µs

	known   atomic.Pointer[registered]
	looking atomic.Bool // in the background
}

// registered is what is known to be committed of a history.
type registered struct {
	id   int64
	seen time.Time // when it was looked for
	off  bool      // an operator has turned it off
	read time.Time // when that was read
}

// ready finds or registers the history, if it is not known yet.
func (h *history) ready(ctx context.Context) error {
	if h.known.Load() == nil {
		return h.look(ctx)
	}
	h.refresh() //nolint:contextcheck // the search continues after this call
	return nil
}

// refresh looks in the background whether something has changed, from time to time.
func (h *history) refresh() {
	known := h.known.Load()
	if known != nil && time.Since(known.seen) < lookEvery || !h.looking.CompareAndSwap(false, true) {
		return
	}
	h.of.histories.inBackground(func(ctx context.Context) {
		defer h.looking.Store(false)
		if err := h.look(ctx); err != nil {
			h.of.logger.Debug("Postbox could not read the settings of a history, and tries again: "+err.Error(), watermill.LogFields{"history": h.name})
		}
	})
}

// look finds or registers the history on a connection of its own, and stores how long its messages
// are kept, which the cleanup reads.
func (h *history) look(ctx context.Context) error {
	statements, db := h.of.core.Statements, h.of.core.DB
	now := time.Now()
	found := &registered{seen: now, read: now}
	var err error
	if found.id, err = spool.New(statements, h.name).Open(ctx, db); err != nil {
		return fmt.Errorf("keep received messages: %w", err)
	}
	// Two copies of a message come here at the same time: on a server that gives statements a
	// strict isolation, one would have a conflict.
	err = spool.InTx(ctx, db, statements, func(tx *sql.Tx) error { return spool.Run(ctx, tx, h.keeps(found.id)) })
	if err != nil {
		return fmt.Errorf("keep received messages: %w", err)
	}
	var text string
	if err := db.QueryRowContext(ctx, statements.SettingsOf, found.id).Scan(&text); err != nil {
		return fmt.Errorf("keep received messages: read settings: %w", err)
	}
	found.off = h.isOff(text)
	h.known.Store(found)
	return nil
}

// isOff reports whether settings turn the history off.
func (h *history) isOff(text string) bool {
	settings, err := spool.DecodeSettings(text)
	if err != nil { // the cleanup deletes nothing then
		h.of.logger.Error("Postbox cannot read stored settings", err, watermill.LogFields{"history": h.name})
	}
	return settings.History < 0
}

// reread reads in a transaction whether an operator has turned the history off. A process that had
// nothing to do for a while knows that from before.
func (h *history) reread(ctx context.Context, tx *sql.Tx, known *registered) (*registered, error) {
	var text string
	err := tx.QueryRowContext(ctx, h.of.core.Statements.SettingsOf, known.id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) { // it has another id since a backup was restored, for which refresh looks
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep received messages: read settings: %w", err)
	}
	again := &registered{id: known.id, seen: known.seen, off: h.isOff(text), read: time.Now()}
	h.known.CompareAndSwap(known, again)
	return again, nil
}

func (h *history) keeps(id int64) dialect.Query {
	return h.of.core.Statements.KeepHistory(id, h.keep.Load())
}

// id returns the id of the history in a transaction, or 0 if nothing is to be kept. While the
// history is not known, which happens only in a transaction of the user, the transaction registers
// it, and the id is valid there alone.
func (h *history) id(ctx context.Context, tx *sql.Tx) (int64, error) {
	if known := h.known.Load(); known != nil {
		if time.Since(known.read) >= lookEvery {
			var err error
			if known, err = h.reread(ctx, tx, known); err != nil {
				return 0, err
			}
		}
		if known.off {
			return 0, nil
		}
		return known.id, nil
	}
	id, err := spool.New(h.of.core.Statements, h.name).OpenIn(ctx, tx)
	if err == nil {
		err = spool.Run(ctx, tx, h.keeps(id))
	}
	if err != nil {
		return 0, fmt.Errorf("keep received messages: %w", err)
	}
	return id, nil
}
