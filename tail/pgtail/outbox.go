package pgtail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// ErrSlotLost is returned by Run of a forwarder if messages of the log may be lost, since its slot is gone, is invalid or
// was made anew, or if its publication was dropped or renamed, so that the server cannot read its log from there on. Nothing is read any more until [AcceptLoss], so that no operator overlooks it.
// What is written to the log before that call is lost, too, so accept the loss first, and only then publish again what is missing. Publishers get errors until then if the slot or the publication is missing, and see no error
// otherwise.
var ErrSlotLost = errors.New("messages that were in the log alone may be lost, and so are those that are written to it from now on: run \"postbox log accept-loss\", or call pgtail.AcceptLoss, which says from when to when messages may be missing, and publish these again afterwards, not before")

// OutboxConfig says how messages are read that are in the log alone.
type OutboxConfig struct {
	// DSN is the data source name of the database, for pgx, as a URL or as words. It must lead to the primary server itself, not to a pooler, and its
	// role needs the attribute REPLICATION and USAGE on the schema, but no right on any table. Required.
	DSN string
	// NoFailover makes [SetupOutbox] and [AcceptLoss] make a slot that a failover loses. By default, on PostgreSQL 17 and later, standbys with sync_replication_slots keep the slot. Set
	// synchronized_standby_slots on the primary, too: otherwise a failover to a standby that lags is a loss, which is noticed. Older servers lose each slot in a failover.
	NoFailover bool
	// Waits is called by [SetupOutbox], [AcceptLoss], [RemoveOutbox] and [DiscardOutbox] while they wait for transactions of others for longer than three seconds. The text says for what, and for which process of
	// the server. It is called again when that has changed, and on a goroutine of its own. Optional.
	Waits func(what string)
}

func (c OutboxConfig) parse() (*pgconn.Config, error) {
	return Config{DSN: c.DSN, Publication: defaultPublication}.validate()
}

// Outbox reads the messages that publishers with Log write into the log, for any number of forwarders of this process whose outboxes
// are in the same tables. It publishes each message that nothing holds back, and stores all others as rows, in the order of commits, which the forwarders publish. It also stores messages
// of outboxes that no forwarder of this process has. docs/log-tailing.md says what holds a message back. It has one connection of its own while a forwarder runs that it was given to, as Tail of its
// configuration. Of all processes, one at a time reads: the others stand by, and one of them takes over within a second. It is safe for concurrent use.
//
// Rows and the position up to which the log was read commit together, after the broker has acknowledged the messages that get no row. So after a crash nothing
// is missing and nothing is stored twice; messages that were published since the last commit are published again.
//
// Run of the forwarders returns an error if the log is not set up, or cannot be read for a reason that waiting does not help against. It returns
// [ErrSlotLost] after a loss.
type Outbox struct {
	address          *pgconn.Config
	retainedInterval time.Duration

	group
}

// NewOutbox returns an Outbox, which does nothing before a forwarder runs that has it. The error names all mistakes in
// the configuration.
func NewOutbox(config OutboxConfig) (*Outbox, error) {
	address, err := config.parse()
	if err != nil {
		return nil, fmt.Errorf("pgtail: %w", err)
	}
	return &Outbox{address: address, retainedInterval: retainedInterval}, nil
}

// Follow is for forwarders, which call it while they run.
func (o *Outbox) Follow(ctx context.Context, outbox tail.Outbox) error {
	return o.follow(ctx, outbox, func(f *follower) { f.Feed.Tell(o.tells) }, func(ctx context.Context) {
		r := &receiver{group: &o.group, session: o.session, lines: outboxLines}
		r.final = func(err error) bool { // a server that was fine may be restarting, or failing over
			var wrong *setupError
			return errors.Is(err, ErrSlotLost) || !r.hasRead && errors.As(err, &wrong)
		}
		r.run(ctx)
	})
}

var outboxLines = lines{
	standby:      "Postbox does not read messages from the log: another process does, and this one stands by to take over",
	stillFailing: "Postbox still cannot read messages from the log",
	failing:      "Postbox cannot read messages from the log and goes on trying: until it can, messages of publishers with Log wait there",
	started:      "Postbox reads messages from the log",
}

// session reads and stores messages until it fails.
func (o *Outbox) session(ctx context.Context, outbox tail.Outbox, says says) error {
	slot, err := findSlot(ctx, outbox)
	if err != nil {
		return err
	}
	s, err := connectTo(ctx, o.address, outbox)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	if err := s.start(ctx, outbox.Statements.StartOutboxReplication(slot.name)); err != nil {
		if _, again := findSlot(ctx, outbox); errors.Is(again, ErrSlotLost) {
			return again // it was dropped since it was found, and the server says only that something is missing
		}
		return err
	}
	sent := s.stream(o.hear)
	var begins beginning
	err = sent.during(ctx, func(ctx context.Context) (err error) { // after the slot is ours, so that a process that stands by does not fence out the one that reads
		begins, err = slot.begin(ctx, outbox, s.server)
		return err
	})
	if err != nil {
		return err
	}
	defer o.tell(false)
	within, cancel := context.WithCancelCause(ctx)
	watch := retainedWatch{group: &o.group, slot: slot.name, interval: o.retainedInterval, give: cancel, reached: &s.reached}
	watch.lacks = func(ctx context.Context) error { return o.tellBy(ctx, outbox, slot.name) }
	defer watch.begin(within)()
	in := newIntake(begins.position)
	k := &keeper{outbox: outbox, group: &o.group, intake: in, position: begins.position, saved: slot.confirmed, since: begins.since, spools: map[string]*target{}, succeeds: says.stored}
	if !outbox.Unprepared {
		k.prepared = spool.NewPrepared(outbox.DB)
	}
	says.started(slot.name)
	stored := make(chan struct{})
	go func() {
		defer close(stored)
		if err := k.run(within); err != nil {
			cancel(&storeError{explainStore(within, outbox.DB, outbox.Statements, err)})
		}
	}()
	defer func() { <-stored }()
	defer cancel(nil)
	o.hear(time.Now())
	if err := sent.during(within, func(ctx context.Context) error { return o.tellBy(ctx, outbox, slot.name) }); err != nil {
		return cause(within, err)
	}
	o.each(func(o tail.Outbox) { o.Meter.ReadsLog(true) })
	defer o.each(func(o tail.Outbox) { o.Meter.ReadsLog(false) })
	from := &emittedStream{stream: sent, decoder: tail.NewEmittedDecoder(s.table, append(begins.told, s.table)...), change: o.change, intake: in, logger: outbox.Logger}
	err = from.receive(within, func(data []byte) error { return from.take(within, data) })
	if lacksPublication(err, slot.name) {
		close(in.ended) // what the server could still read is not lost
		select {
		case <-stored:
		case <-time.After(lastPatience):
		case <-ctx.Done():
		}
		err = slot.unreadable()
	}
	return cause(within, err)
}

// tellBy tells forwarders whether the publication of the slot is complete. If it is not, they poll.
func (o *Outbox) tellBy(ctx context.Context, outbox tail.Outbox, slot string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	has, err := published(ctx, outbox.DB, outbox.Statements, slot)
	o.tell(err == nil && has.complete())
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
