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

// maxGroup is how many transactions share a commit at most. The first of them waits for all others; with as many, a
// hundredth of the wait for the disk falls to each.
const maxGroup = 100

// GroupCommit lets transactions on SQLite share commits. SQLite has one writer, so transactions run one after the other,
// and each would wait for the disk by itself. With GroupCommit, those that come while a commit is under way run in
// the next one, in the order in which they came, at most 100 of them. There is no timer, and a function that is alone does not wait.
// Servers do the like by themselves: group commit is as old as DeWitt and others, "Implementation techniques for main
// memory database systems", 1984.
//
// It is safe for concurrent use. Have one for a database; it keeps nothing that would have to be closed.
type GroupCommit struct {
	db *sql.DB

	mu   sync.Mutex
	line []*member // not yet in a group
	led  bool      // a function begins a group, or is in one
}

// member is a call of [GroupCommit.InTx].
type member struct {
	turn  chan *group  // its turn: in a group, or, if that is nil, to begin one. Has room for the one
	ended chan outcome // of the group in which it had its turn. Has room for the one
}

// outcome is what comes of a group.
type outcome struct {
	again bool // it was rolled back, and not for an error of those who wait
	err   error
}

// NewGroupCommit returns a GroupCommit for an SQLite database. Other databases share commits by themselves, and would get
// slower: for them it returns an error.
func NewGroupCommit(db postbox.Database) (*GroupCommit, error) {
	if kind := dialect.Kind(db.Dialect); kind.Check() == nil && !kind.Can().OneWriter {
		return nil, fmt.Errorf("group commit: %s shares commits by itself: use forwarder.InTx", db.Dialect)
	}
	if _, err := spool.StatementsIn(db); err != nil {
		return nil, fmt.Errorf("group commit: %w", err)
	}
	return &GroupCommit{db: db.DB}, nil
}

// InTx runs fn in a transaction, as the function [InTx] does, and returns after its commit. The transaction is shared,
// and what fn did in it is not: an error of fn, a panic, or the end of ctx rolls back what fn wrote, by a savepoint, and
// nothing else. After a crash either all of those who shared it are there or none.
//
// fn sees what those before it in the group wrote, which is committed together with its own. It must end soon, since
// others wait for it, and leave it to InTx to end the transaction. If it ends the transaction itself and returns nil, the error is [postbox.ErrCommitUnknown]. Those before it return if that was a
// commit, and otherwise run again.
//
// A function that waits for its turn leaves when ctx ends. When fn has run, InTx returns after the others of the group and the commit,
// whatever becomes of ctx.
//
// Where ctx carries a transaction already, fn runs in a savepoint of that one, as in the function [InTx].
//
// The context and the tx that fn gets are for fn alone. After fn has returned, tx may be in use by another function, whose writes a goroutine that fn left behind would change: with the
// context it cannot, since InTx and Publish refuse it.
//
// fn may run a second time, then by itself, where the group was rolled back: because the context of another
// one ended within a statement, another one returned while InTx or Publish still worked with its context, or the database refused the commit, as it does for a foreign key
// that is checked at the end. Else it runs once, and its errors are its own.
func (c *GroupCommit) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if c == nil || fn == nil {
		return errors.New("group commit: the GroupCommit or the function is nil")
	}
	if tx, err := carried(ctx, c.db, nil); err != nil {
		return err
	} else if tx != nil {
		return within(ctx, tx, fn)
	}
	me := &member{turn: make(chan *group, 1), ended: make(chan outcome, 1)}
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

// await returns the group in which it is our turn.
func (c *GroupCommit) await(ctx context.Context, me *member) (*group, error) {
	c.enter(me)
	var g *group
	select {
	case g = <-me.turn:
	case <-ctx.Done():
		if c.leave(me) {
			return nil, ctx.Err()
		}
		g = <-me.turn // it has been given to us, and others wait behind us
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
		c.line = append(c.line, me)
		return
	}
	c.led = true
	me.turn <- nil
}

// leave says whether it was not our turn yet.
func (c *GroupCommit) leave(me *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.line, me)
	if at < 0 {
		return false
	}
	c.line = slices.Delete(c.line, at, at+1)
	return true
}

// begin opens a group for all who wait by the time that its transaction has begun.
func (c *GroupCommit) begin(ctx context.Context) (*group, error) {
	// The transaction does not end with our context: it belongs to others too.
	conn, tx, err := begin(ctx, context.WithoutCancel(ctx), c.db, nil)
	if err != nil {
		c.next()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &group{commits: c, conn: conn, tx: tx, turns: min(len(c.line), maxGroup-1)}, nil
}

// next lets the first in line begin a group.
func (c *GroupCommit) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.led = c.hand(nil)
}

// turn gives the first in line its turn in a group. It says whether there was one.
func (c *GroupCommit) turn(g *group) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hand(g)
}

// hand is turn for a caller that has the lock.
func (c *GroupCommit) hand(g *group) bool {
	if len(c.line) == 0 {
		return false
	}
	c.line[0].turn <- g
	c.line = slices.Delete(c.line, 0, 1)
	return true
}
