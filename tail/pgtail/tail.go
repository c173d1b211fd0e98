package pgtail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// Tail reads the log of one database, for any number of forwarders of this process whose outboxes are in the same tables.
// It has one connection of its own, while a forwarder runs that it was given to. Of all processes, one at a time reads
// the log of a table: the others stand by and poll, and one of them takes over within a second. It is safe for concurrent use.
//
// A crash of the process leaves nothing behind: its slot ends with its connection, and the messages that it had read are
// still in the outbox.
type Tail struct {
	config           Config
	address          *pgconn.Config
	retainedInterval time.Duration

	mu        sync.Mutex
	followers []*follower
	tables    string // name of the table of messages of all followers
	server    string // incarnation of the server while its log is read
	stop      context.CancelFunc
	ended     chan struct{} // closed when the receiver has ended
}

// follower is an outbox that follows the log.
type follower struct {
	tail.Outbox

	failed chan error // gets the reason why the log will never be read
}

// New returns a Tail, which does nothing before a forwarder runs that has it. The error names all mistakes in the
// configuration.
func New(config Config) (*Tail, error) {
	config.setDefaults()
	address, err := config.validate()
	if err != nil {
		return nil, fmt.Errorf("pgtail: %w", err)
	}
	return &Tail{config: config, address: address, retainedInterval: retainedInterval}, nil
}

// Follow is for forwarders, which call it while they run.
func (t *Tail) Follow(ctx context.Context, outbox tail.Outbox) error {
	f := &follower{Outbox: outbox, failed: make(chan error, 1)}
	if err := t.join(ctx, f); err != nil {
		return fmt.Errorf("pgtail: %w", err)
	}
	defer t.leave(f)
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.failed:
		return fmt.Errorf("pgtail: %w", err)
	}
}

// errTables is the error of a Tail that two forwarders share whose outboxes are in different tables.
var errTables = errors.New("the outboxes of one Tail must be in the same tables: make another Tail for another schema or prefix")

// join adds a follower. The first one starts the receiver.
func (t *Tail) join(ctx context.Context, f *follower) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tables := f.Statements.Names.Table("messages")
	if len(t.followers) > 0 && tables != t.tables {
		return errTables
	}
	t.tables = tables
	t.followers = append(t.followers, f)
	if t.server != "" {
		f.Feed.Begin(t.server)
	}
	if len(t.followers) == 1 {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // of the receiver, which all followers share
		ended, before := make(chan struct{}), t.ended
		t.stop, t.ended = cancel, ended
		r := &receiver{tail: t}
		go func() {
			defer close(ended)
			if before != nil {
				<-before
			}
			r.run(ctx)
		}()
	}
	return nil
}

// leave removes a follower. The last one ends the receiver, and waits for its end.
func (t *Tail) leave(f *follower) {
	t.mu.Lock()
	t.followers = slices.DeleteFunc(t.followers, func(other *follower) bool { return other == f })
	last, ended := len(t.followers) == 0, t.ended
	if last {
		t.stop()
	}
	t.mu.Unlock()
	f.Feed.End()
	if last {
		<-ended
	}
	f.Meter.ReadsLog(false)
	f.Meter.LogRetained(0)
}

// outbox returns one of the outboxes, for statements beside the log; ok is false if there is none.
func (t *Tail) outbox() (outbox tail.Outbox, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.followers) == 0 {
		return outbox, false
	}
	return t.followers[0].Outbox, true
}

// begin says that from now on the log of a server is read; an empty name says that none is read.
func (t *Tail) begin(server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.server = server
	for _, f := range t.followers {
		f.Feed.Begin(server)
	}
}

// deliver gives a message to the outboxes that it may belong to.
func (t *Tail) deliver(m tail.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.followers {
		f.Feed.Add(m)
	}
}

// fail ends all followers.
func (t *Tail) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.followers {
		select {
		case f.failed <- err:
		default:
		}
	}
}

// measure reports to the meters of all followers.
func (t *Tail) measure(report func(outbox tail.Outbox)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.followers {
		report(f.Outbox)
	}
}
