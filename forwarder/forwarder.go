package forwarder

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// Forwarder drains an outbox into a Watermill publisher. Run it alone or give it a router. Run as
// many as you like, also in one process: they share the lanes of the outbox, and one of them
// publishes each message.
//
// It publishes each message at least once. A crash loses nothing: messages that were published but
// not yet recorded as published are published again, by the process that takes over the lanes after
// the lease. A Forwarder needs a pool of two connections to do everything without waiting, and
// works with one. It keeps its statements prepared unless DisablePreparedStatements is set.
type Forwarder struct {
	config     Config
	db         *sql.DB
	statements *dialect.Statements
	spool      *spool.Spool
	drainer    *drain.Drainer
	relay      *relay
	logger     watermill.LoggerAdapter

	followed tail.Outbox // what the Tail gets; without a feed there is none

	life    lifecycle.Once
	failure atomic.Pointer[error] // why the log, which must be read, cannot be

	hangAfter, hangLook time.Duration // see watch.go
}

// New returns a forwarder from the outbox in db to the publisher, which stays open when the
// forwarder closes. A nil logger logs nothing. With config.Router the forwarder is added to that
// router, and starts with it.
func New(db postbox.Database, publisher message.Publisher, config Config, logger watermill.LoggerAdapter) (*Forwarder, error) {
	if given.Nil(publisher) {
		return nil, errors.New("forwarder: the publisher is nil")
	}
	config.Limits.Topics = maps.Clone(config.Limits.Topics)
	config.Sources = slices.Clone(config.Sources)
	config.setDefaults()
	statements, err := spool.StatementsIn(db)
	if err := errors.Join(err, config.validate(db.Dialect)); err != nil {
		return nil, fmt.Errorf("forwarder: %w", err)
	}
	outbox := spool.New(statements, config.Outbox)
	if writesTo(publisher, db.DB, outbox) {
		return nil, fmt.Errorf("forwarder: the publisher writes to the outbox %q, from which this forwarder reads, so each message would return to that outbox without end: "+
			"use the publisher of your broker", config.Outbox)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	logger = logger.With(watermill.LogFields{"forwarder": config.Name})
	f := &Forwarder{
		config: config, db: db.DB, statements: statements, logger: logger,
		spool: outbox, hangAfter: hangAfter, hangLook: hangLook,
	}
	measured := meter.Of(db.Metrics, f.spool.Name(), logger)
	f.relay = &relay{publisher: publisher, classify: spool.Classified(config.Classify, logger), meter: measured, logger: logger}
	f.drainer = drain.New(db.DB, f.spool, f.relay, f.drainerConfig(db.DisablePreparedStatements, measured), logger)
	f.relay.reload = f.drainer.Reload
	f.relay.circuits = circuit.New(circuit.Config{
		FailuresInRow: config.FailuresInRow, ProbeMin: config.ProbeMin, ProbeMax: config.ProbeMax,
		Width: config.Concurrency, OutageLimit: config.OutageLimit, Changed: measured.Circuit,
	}, f.drainer.Rescan)
	if config.Router != nil {
		if err := f.addTo(config.Router); err != nil {
			return nil, fmt.Errorf("forwarder: %w", err)
		}
	}
	return f, nil
}

func (f *Forwarder) drainerConfig(unprepared bool, measured *meter.Spool) drain.Config {
	c := drain.Tuned(f.config.Tuning, f.config.Concurrency, f.config.Retry)
	c.BatchSize, c.Limits, c.Meter = f.config.BatchSize, f.config.Limits, measured
	c.Close, c.Unprepared = f.config.CloseTimeout, unprepared
	c.Work = spool.NameText(cmp.Or(f.config.Destination, fmt.Sprintf("%s publishes through %T", c.Work, f.relay.publisher)))
	c.Feed = f.follow(measured)
	c.Circuits = func() *circuit.Circuits { return f.relay.circuits }
	return c
}

// Run publishes messages until ctx ends or Close is called, and returns after a clean stop. From
// then on it takes no more messages, waits for calls to the broker up to the close timeout, and
// records their outcome. It hands back each lane as soon as no call of it is under way.
//
// Run waits for a database that is away. It returns, and logs, an error if waiting does not help:
// the tables are missing, or the database has another dialect or is set in a way that would break
// promises (docs/databases.md). It can be called once.
func (f *Forwarder) Run(ctx context.Context) error {
	if f.config.Router != nil {
		return fmt.Errorf("forwarder %q runs with its router: call Run of the router", f.config.Name)
	}
	return f.run(ctx)
}

func (f *Forwarder) run(ctx context.Context) error {
	ctx, end, err := f.life.Begin(ctx, fmt.Sprintf("forwarder %q", f.config.Name))
	if err != nil {
		return err
	}
	defer end()
	defer f.relay.circuits.Stop()

	var beside sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	withDrainer, cancel := context.WithCancel(ctx)
	defer cancel()
	f.runBeside(withDrainer, &beside)
	var tailing error // why the log, which must be read, cannot be
	beside.Go(func() {
		if tailing = f.runTail(withDrainer); tailing != nil {
			stop()
		}
	})
	err = f.drainer.Run(ctx)
	cancel()
	beside.Wait()
	err = cmp.Or(err, tailing)
	if tailing != nil {
		f.failure.Store(&tailing)
	}
	if err != nil { // it is easily overlooked: Run mostly has a goroutine of its own
		f.logger.Error("Postbox's forwarder has stopped and publishes nothing: fix the cause of the error, and start the forwarder again", err,
			watermill.LogFields{"outbox": f.config.Outbox})
		return fmt.Errorf("forwarder: %w", err)
	}
	return nil
}

// runBeside starts the goroutines that run concurrently with the drainer.
func (f *Forwarder) runBeside(ctx context.Context, beside *sync.WaitGroup) {
	if f.config.ListenDSN != "" {
		beside.Go(func() { f.drainer.Listen(ctx, f.config.ListenDSN) })
	}
	beside.Go(func() { f.watch(ctx) })
	for _, source := range f.config.Sources {
		beside.Go(func() { f.takeOver(ctx, source) })
	}
	cleaner := cleanup.New(f.db, f.statements, spool.ProcessName()+" "+postbox.NewMessageID(), cleanup.Config{
		DeadLetters: f.config.DeadLetterRetention, Failures: f.config.DeadLetterRetention, History: true,
		Unattended: cleanup.UnattendedAfter, UniqueKeys: true,
	}, f.logger)
	beside.Go(func() { cleaner.Run(ctx) })
}

// Running is closed when the forwarder has opened the outbox and polled it for the first time.
func (f *Forwarder) Running() <-chan struct{} { return f.drainer.Ready() }

// Health tells whether the forwarder works, for package health.
func (f *Forwarder) Health() []health.State {
	state := f.drainer.Health()
	if failure := f.failure.Load(); failure != nil {
		state.Err = *failure
	}
	state.Name = fmt.Sprintf("outbox %q", f.config.Outbox)
	return []health.State{state}
}

// Close stops the forwarder cleanly and waits for the end of Run. It can be called twice, and
// before Run, which then fails with [postbox.ErrClosed].
func (f *Forwarder) Close() error {
	f.life.Close()
	return nil
}
