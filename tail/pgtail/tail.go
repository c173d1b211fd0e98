package pgtail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// reader is what [New] returns.
type reader struct {
	config           Config
	address          *pgconn.Config
	retainedInterval time.Duration

	group
	server string // incarnation of the server while its log is read
}

// New returns what reads the log of one database, for any number of forwarders of this process
// whose outboxes are in the same tables. It has one connection of its own, while a forwarder runs
// that has it as Tail. Of all processes, one at a time reads the log of a table: the others stand
// by and poll, and one of them takes over within a second. It is safe for concurrent use.
//
// A crash of the process leaves nothing behind: its slot ends with its connection, and the messages
// that it had read are still in the outbox. The error names all mistakes in the configuration.
func New(config Config) (forwarder.Tail, error) {
	config.setDefaults()
	address, err := config.validate()
	if err != nil {
		return nil, fmt.Errorf("pgtail: %w", err)
	}
	return &reader{config: config, address: address, retainedInterval: retainedInterval}, nil
}

func (t *reader) Follow(ctx context.Context, outbox tail.Outbox) error {
	return t.follow(ctx, outbox, func(f *follower) {
		if t.server != "" {
			f.Feed.Tell(t.tells)
		}
	}, func(ctx context.Context) {
		r := &receiver{group: &t.group, session: t.session, final: func(err error) bool {
			var wrong *setupError
			return t.config.Required && errors.As(err, &wrong)
		}}
		r.run(ctx)
	})
}

// session reads the log over one connection until it fails.
func (t *reader) session(ctx context.Context, outbox tail.Outbox, started func(slot string)) error {
	defer t.begin("")
	if err := untaken(ctx, outbox.DB, outbox.Statements); err != nil { // a cheap look, before there is a connection
		return err
	}
	has, err := prerequisites(ctx, outbox.DB, outbox.Statements, t.config.Publication)
	if err != nil {
		return err
	}
	s, err := connectTo(ctx, t.address, outbox)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	within, cancel := context.WithCancelCause(ctx)
	publication := &watchedPublication{outbox: outbox, name: t.config.Publication, version: has.version, tell: t.tell, change: t.change}
	watch := retainedWatch{group: &t.group, slot: s.slot, interval: t.retainedInterval, most: t.config.MaxRetained, lacks: func(ctx context.Context) error {
		if err := s.leadsTo(ctx, outbox.DB, outbox.Statements); err != nil {
			return err
		}
		return publication.lacks(ctx)
	}, give: cancel, reached: &s.reached}
	defer watch.begin(within)()
	defer cancel(nil)
	if err := s.createSlot(within); err != nil {
		return cause(within, err)
	}
	if err := s.start(within, startReplication(s.slot, t.config.Publication, s.version() >= binaryVersion)); err != nil {
		return cause(within, err)
	}
	started(s.slot)
	t.begin(s.server)
	t.hear(time.Now())
	t.tell(has.tells())
	t.each(func(o tail.Outbox) { o.Meter.ReadsLog(true) })
	defer t.each(func(o tail.Outbox) { o.Meter.ReadsLog(false) })
	inserts := &insertStream{stream: s.stream(t.hear), decoder: tail.NewDecoder(s.table, s.told[:]...), change: t.change, check: publication.check}
	return cause(within, inserts.receive(within, func(data []byte) error { return inserts.take(within, data) }))
}

// begin says that from now on the log of a server is read; an empty name says that none is read.
func (t *reader) begin(server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.server, t.tells = server, false
	for _, f := range t.followers {
		f.Feed.Begin()
	}
}

// tell says whether the log tells each change. It tells none before it is read.
func (t *reader) tell(tells bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tellAll(tells && t.server != "")
}
