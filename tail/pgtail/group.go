package pgtail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// group is the outboxes of this process for which a log is read. Its receiver runs while there are
// any.
type group struct {
	mu        sync.Mutex
	followers []*follower
	tables    string // name of the table of messages of all followers
	tells     bool   // the log that is read tells each change
	stop      context.CancelFunc
	ended     chan struct{} // closed when the receiver has ended
}

// follower is an outbox that follows the log.
type follower struct {
	tail.Outbox

	failed chan error // gets the reason why the log will never be read
}

// follow adds an outbox until ctx ends. joined is called with the new follower while no other one
// joins or leaves.
func (g *group) follow(ctx context.Context, outbox tail.Outbox, joined func(f *follower), run func(ctx context.Context)) error {
	f := &follower{Outbox: outbox, failed: make(chan error, 1)}
	if err := g.join(ctx, f, joined, run); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	defer g.leave(f)
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.failed:
		return fmt.Errorf("pgtail: %w", err)
	}
}

// errTables is the error of a reader of the log that two forwarders share whose outboxes are in
// different tables.
var errTables = errors.New("the outboxes of one Tail must be in the same tables: make another Tail for another schema or prefix")

// join adds a follower. The first one starts the receiver.
func (g *group) join(ctx context.Context, f *follower, joined func(f *follower), run func(ctx context.Context)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	tables := f.Statements.Names.Table("messages")
	if len(g.followers) > 0 && tables != g.tables {
		return errTables
	}
	g.tables = tables
	g.followers = append(g.followers, f)
	joined(f)
	if len(g.followers) == 1 {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of the receiver, which all followers share
		ended, before := make(chan struct{}), g.ended
		g.stop, g.ended = cancel, ended
		go func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			run(ctx)
		}()
	}
	return nil
}

// leave removes a follower. The last one ends the receiver, and waits for its end.
func (g *group) leave(f *follower) {
	g.mu.Lock()
	g.followers = slices.DeleteFunc(g.followers, func(other *follower) bool { return other == f })
	last, ended := len(g.followers) == 0, g.ended
	if last {
		g.stop()
	}
	g.mu.Unlock()
	f.Feed.Begin()
	if last {
		<-ended
	}
	f.Meter.ReadsLog(false)
	f.Meter.LogRetained(0)
}

// outbox returns one of the outboxes, for statements beside the log; ok is false if there is none.
func (g *group) outbox() (outbox tail.Outbox, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.followers) == 0 {
		return outbox, false
	}
	return g.followers[0].Outbox, true
}

// each calls do with all outboxes.
func (g *group) each(do func(outbox tail.Outbox)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.followers {
		do(f.Outbox)
	}
}

// hear says that the server has sent something.
func (g *group) hear(now time.Time) { g.each(func(o tail.Outbox) { o.Feed.Hear(now) }) }

// tellAll says whether the log that is read tells each change. The group is locked.
func (g *group) tellAll(tells bool) {
	g.tells = tells
	for _, f := range g.followers {
		f.Feed.Tell(tells)
	}
}

// change tells the outboxes of a change.
func (g *group) change(c tail.Change) { g.each(func(o tail.Outbox) { o.Feed.Add(c) }) }

// fail ends all followers.
func (g *group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.followers {
		select {
		case f.failed <- err:
		default:
		}
	}
}
