package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// maxGroup is how many transactions share a commit at most. The first of them waits for all others. With this many, each of them bears a
// hundredth of the wait for the disk.
const maxGroup = 100

// GroupCommit lets transactions on SQLite share commits. SQLite has one writer, so transactions run one after the other,
// and each would wait for the disk by itself. With GroupCommit, transactions that arrive while a commit is under way share
// the next commit, at most 100 of them, in the order in which they arrived. There is no timer: a lone function commits immediately.
// Database servers do this by themselves. Group commit is described by DeWitt and others in "Implementation techniques for main
// memory database systems", 1984.
//
// It is safe for concurrent use. Make one for each database. It does not have to be closed.
type GroupCommit struct {
	db *sql.DB

	mu    sync.Mutex
	queue []*member // not yet in a group
	led   bool      // a function begins a group, or is in one
}

// member is a call of [GroupCommit.InTx].
type member struct {
	slot  chan *group  // receives the group in which it has a slot, or nil if it has to begin one. Has room for one value
	ended chan outcome // receives the outcome of the group in which it had a slot. Has room for one value
}

// outcome is the result of a group.
type outcome struct {
	again bool // it was rolled back, and not for an error of a member that waits
	err   error
}

// NewGroupCommit returns a GroupCommit for an SQLite database. For other databases it returns an error: they share commits by themselves, and
// would become slower.
func NewGroupCommit(db postbox.Database) (*GroupCommit, error) {
	if kind := dialect.Kind(db.Dialect); kind.Check() == nil && !kind.Can().OneWriter {
		return nil, fmt.Errorf("group commit: %s shares commits by itself: use forwarder.InTx", db.Dialect)
	}
	if _, err := spool.StatementsIn(db); err != nil {
		return nil, fmt.Errorf("group commit: %w", err)
	}
	return &GroupCommit{db: db.DB}, nil
}

// InTx runs fn in a transaction, as the function [InTx] does, and returns after its commit. The transaction is shared, but
// fn's writes are separate: an error of fn, a panic, or the end of ctx rolls back, by a savepoint, only what fn wrote.
// After a crash, either the writes of all functions that shared the transaction are there, or none.
//
// fn sees the writes of the functions before it in the group, which are committed together with its own. It must end soon, since
// others wait for it, and must leave the end of the transaction to InTx. If it ends the transaction itself and returns nil, the error is [postbox.ErrCommitUnknown].
// The functions before it return if it committed; otherwise they run again.
//
// A function that waits for its turn leaves when ctx ends. When fn has run, InTx returns after the others of the group and the commit,
// even if ctx ends.
//
// If ctx already carries a transaction, fn runs in a savepoint of it, as in the function [InTx].
//
// The context and the tx that fn gets are for fn alone. After fn has returned, another function may be using tx, and a goroutine that fn left behind would write in that
// function's turn. With the context that cannot happen, since InTx and Publish refuse it.
//
// fn may run a second time, then by itself, if the group was rolled back for one of these reasons: the context of another
// function ended within a statement; another function returned while InTx or Publish still worked with its context; or the database refused the commit, as it does
// for a foreign key that is checked at the end. Otherwise fn runs once, and its errors are its own.
func (c *GroupCommit) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if c == nil || fn == nil {
		return errors.New("group commit: the GroupCommit or the function is nil")
	}
	if tx, err := carried(ctx, c.db, nil); err != nil {
		return err
	} else if tx != nil {
		return within(ctx, tx, fn)
	}
	me := &member{slot: make(chan *group, 1), ended: make(chan outcome, 1)}
	g, err := c.await(ctx, me)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	scope := txscope.Hooked(ctx, g.tx)
	if waits, err := g.run(scope.Context(ctx), scope, me, fn); !waits {
		return err
	}
	end := <-me.ended
	switch {
	case end.again:
		return InTx(ctx, c.db, fn)
	case end.err != nil:
		return end.err
	}
	scope.Committed()
	return nil
}

// await returns the group when me has its slot.
func (c *GroupCommit) await(ctx context.Context, me *member) (*group, error) {
	c.enter(me)
	var g *group
	select {
	case g = <-me.slot:
	case <-ctx.Done():
		if c.leave(me) {
			return nil, ctx.Err()
		}
		g = <-me.slot // it has been given to us, and others wait behind us
	}
	if g != nil {
		return g, nil
	}
	return c.begin(ctx)
}

func (c *GroupCommit) enter(me *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.led {
		c.queue = append(c.queue, me)
		return
	}
	c.led = true
	me.slot <- nil
}

// leave returns true if the member did not have its slot yet.
func (c *GroupCommit) leave(me *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.queue, me)
	if at < 0 {
		return false
	}
	c.queue = slices.Delete(c.queue, at, at+1)
	return true
}

// begin opens a group for all members that wait when its transaction has begun.
func (c *GroupCommit) begin(ctx context.Context) (*group, error) {
	// The transaction does not end with our context: it belongs to others too.
	conn, tx, err := begin(ctx, context.WithoutCancel(ctx), c.db, nil)
	if err != nil {
		c.next()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &group{commits: c, conn: conn, tx: tx, slots: min(len(c.queue), maxGroup-1)}, nil
}

// next lets the first member in the queue begin a group.
func (c *GroupCommit) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.led = c.giveSlotLocked(nil)
}

// giveSlot gives the first member in the queue a slot in a group. It says whether there was one.
func (c *GroupCommit) giveSlot(g *group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.giveSlotLocked(g)
}

// giveSlotLocked is giveSlot for a caller that has the lock.
func (c *GroupCommit) giveSlotLocked(g *group) bool {
	if len(c.queue) == 0 {
		return false
	}
	c.queue[0].slot <- g
	c.queue = slices.Delete(c.queue, 0, 1)
	return true
}
