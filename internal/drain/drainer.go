package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Drainer processes the messages of the lanes that it holds of a spool. Any number of drainers, in
// any number of processes, share the lanes of one spool.
type Drainer struct {
	*core
	settle     *settler
	crashGuard *crashGuard
	workers    *workers
	lease      *lease
	limits     *limiter
	tailing    *tailing
	reader     *reader
	idle       *idler

	fatal  error // ends Run, which returns it
	rescan chan struct{}
}

// New returns a drainer, which does nothing before Run.
func New(db *sql.DB, from *spool.Spool, handler Handler, config Config, logger watermill.LoggerAdapter) *Drainer {
	shared := &core{
		db: db, spool: from, configured: config, config: config, logger: logger, lanes: newLaneSet(),
		scheduler: schedule.New(config.BatchSize, config.Gather), control: control{version: unknownVersion},
		pace: pace{slowStart: schedule.SlowStart{Now: time.Now}},
	}
	if !config.Unprepared {
		shared.prepared = spool.NewPrepared(db)
	}
	shared.scheduler.Bound(config.MaxBytes)
	d := &Drainer{
		core: shared, settle: newSettler(shared), crashGuard: &crashGuard{core: shared}, rescan: make(chan struct{}, 1),
		tailing: &tailing{core: shared, feed: config.Feed, others: spool.NewAnnouncer(from, db, logger)},
	}
	d.lease = &lease{core: shared, settle: d.settle}
	d.reader = newReader(shared, handler, d.lease, d.settle, d.tailing)
	d.workers = &workers{core: shared, handler: handler, crashGuard: d.crashGuard}
	d.limits = &limiter{core: shared, lease: d.lease}
	d.idle = &idler{core: shared, reader: d.reader, lease: d.lease, settle: d.settle, tailing: d.tailing}
	return d
}

// Ready is closed after the drainer has polled its lanes for the first time.
func (d *Drainer) Ready() <-chan struct{} { return d.reader.ready }

// Rescan makes the drainer read again the messages that it left out because their topic was
// excluded.
func (d *Drainer) Rescan() {
	select {
	case d.rescan <- struct{}{}:
	default:
	}
}

// Wake makes the drainer poll for new messages now.
func (d *Drainer) Wake() { d.spool.Wake() }

// InFlight returns the number of messages that this drainer is handling, by topic.
func (d *Drainer) InFlight() map[string]int { return d.scheduler.InFlight() }

// Run processes messages until ctx ends, and then stops cleanly. It takes no more messages. Running
// handlers may end within the configured time, with a live context. Then Run settles their messages
// and hands its lanes back. It returns an error if the spool cannot be opened for a reason that
// waiting does not fix.
func (d *Drainer) Run(ctx context.Context) error {
	d.enter(health.Starting)
	end := errRunBroken
	defer func() { d.ended(end) }()
	end = d.run(ctx)
	return end
}

func (d *Drainer) run(ctx context.Context) error {
	wakeUps, stop := d.spool.WakeUps()
	defer stop()
	defer d.prepared.Close()
	defer d.settle.running.Wait()
	defer d.tailing.others.Close()

	live := context.WithoutCancel(ctx)
	stepping, halt := context.WithCancel(live)
	defer halt()
	d.tailing.others.Within = stepping
	defer afterEnd(ctx, handBackTime, halt)()
	if err := d.open(ctx, stepping); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	d.configured.Meter.Begin()
	d.enter(health.Running)
	handling, abort := context.WithCancel(live)
	defer abort()
	d.workers.handling = handling
	defer afterEnd(ctx, d.config.Close+handBackTime, abort)() // even if the stop waits for the database
	d.scheduler.SetLimits(d.config.Limits)
	d.workers.resize()

	defer context.AfterFunc(ctx, d.scheduler.Stop)() // also while a step waits for the database: what began then would be handled again
	d.pace.pause = d.config.PollMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil && d.fatal == nil {
		d.step(stepping)
		d.turned()
		timer.Reset(d.wait())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.scheduler.Changed:
		case <-d.tailing.feed.Changed():
		case <-wakeUps:
			d.reader.wakeSoon()
		case <-d.rescan:
			d.pace.now()
		}
	}
	d.stop(live, abort)
	return d.fatal
}

// afterEnd calls f when ctx has ended so long ago, unless stop is called before.
func afterEnd(ctx context.Context, wait time.Duration, f func()) (stop func()) {
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(wait, f)
		context.AfterFunc(over, func() { timer.Stop() })
	})
	return func() {
		forget()
		end()
	}
}

// open opens the spool. If the database is unavailable, it waits.
func (d *Drainer) open(ctx, live context.Context) error {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		err := d.tryOpen(live)
		if err == nil {
			err = d.learnServer(live)
		}
		if err == nil {
			return nil
		}
		if d.forGood(err) {
			return err
		}
		d.stepFailed(err)
		d.dropUnfit(live, err)
		wait.Reset(d.trouble.pause)
	}
}

// forGood reports whether an error of tryOpen remains however long the drainer waits.
func (d *Drainer) forGood(err error) bool {
	return d.spool.Statements.Kind.Classify(err) == dialect.MissingTable || errors.Is(err, spool.ErrNoTables) || errors.Is(err, dialect.ErrUnfit) || isConfiguration(err)
}

// Check returns the error that would end Run immediately. Call it before Run.
func (d *Drainer) Check(ctx context.Context) error {
	if err := d.tryOpen(ctx); err != nil && d.forGood(err) {
		return err
	}
	return nil
}

func (d *Drainer) tryOpen(live context.Context) error {
	ctx, cancel := context.WithTimeout(live, spool.StatementTimeout)
	defer cancel()
	if err := d.spool.Statements.CheckServer(ctx, d.db); err != nil {
		return d.spool.OpenError(err)
	}
	if err := d.spool.Statements.CheckDeployment(ctx, d.db); err != nil {
		return d.spool.OpenError(err)
	}
	if err := d.spool.Statements.CheckTables(ctx, d.db); err != nil {
		return d.spool.OpenError(err)
	}
	id, err := d.spool.Open(ctx, d.db)
	if err != nil {
		return err
	}
	if err := spool.Run(ctx, d.db, d.spool.Statements.FillLanes(id)); err != nil {
		return fmt.Errorf("create lanes of spool %q: %w", d.spool.Name(), err)
	}
	if keep := d.configured.History.Microseconds(); keep > 0 { // for the process that runs the cleanup
		if err := spool.Run(ctx, d.db, d.spool.Statements.KeepHistory(id, keep)); err != nil {
			return fmt.Errorf("store the history setting of spool %q: %w", d.spool.Name(), err)
		}
	}
	if kind, _ := spool.Named(d.spool.Name()); kind == spool.KindQueue { // for whoever counts what is late
		if err := spool.Run(ctx, d.db, d.spool.Statements.KeepBatches(id, d.configured.Batches)); err != nil {
			return fmt.Errorf("store when batches of spool %q are due: %w", d.spool.Name(), err)
		}
	}
	d.id.Store(id)
	if _, _, err := d.readControl(ctx); err != nil { // tables of an earlier version may lack one that this reads
		return d.spool.OpenError(err)
	}
	if d.tailing.feed != nil {
		d.tailing.feed.Open(id)
	}
	return nil
}

// step performs all due work, in the order that the scheduler relies on: it takes the results of
// settlements, then it reads.
func (d *Drainer) step(live context.Context) {
	inPause := d.trouble.inPause(time.Now())
	if d.tailing.takeTold() {
		d.reader.wakeSoon()
	}
	err := d.settle.settleFinished(live)
	ctx, cancel := context.WithTimeout(live, spool.StatementTimeout)
	defer cancel()
	if err == nil {
		err = eachDue(ctx, d.checkFile, d.idle.beIdle, d.renew)
	}
	if err == nil && inPause {
		return
	}
	if err == nil {
		err = eachDue(ctx, d.applySettings, d.crashGuard.clearLanes, d.lease.releaseLeaving, d.limits.takeFromLimits, d.poll)
	}
	if isConfiguration(err) {
		d.fatal = err
		d.scheduler.Signal() // wakes the loop
		return
	}
	if err != nil {
		d.stepFailed(err)
		d.dropUnfit(ctx, err)
		return
	}
	if !d.settle.removal.failed && !d.settle.part.failed { // otherwise the next one tells whether the trouble is over
		d.stepSucceeded()
	}
}

// eachDue calls these functions in order. It stops at the first error.
func eachDue(ctx context.Context, works ...func(context.Context) error) error {
	for _, work := range works {
		if err := work(ctx); err != nil {
			return err
		}
	}
	return nil
}

// poll reads messages if that is due, and lets them be handed out.
func (d *Drainer) poll(ctx context.Context) error {
	if now := time.Now(); d.pace.due(now) {
		d.idle.stir(now)
	}
	if err := d.reader.poll(ctx); err != nil {
		return err
	}
	d.lease.permit()
	return nil
}

// renew renews the leases when they are due.
func (d *Drainer) renew(ctx context.Context) error {
	if !d.mayRenew() {
		return nil
	}
	if err := d.openAgain(ctx); err != nil || !d.lease.renewalDue() {
		return err
	}
	if err := d.checkStandstill(ctx); err != nil {
		return err
	}
	return d.upkeep(ctx)
}

// upkeep renews the leases now.
func (d *Drainer) upkeep(ctx context.Context) error {
	sent := time.Now()
	d.idle.stir(sent)
	older, err := d.lease.upkeep(ctx, sent)
	if older {
		d.reader.startOver("it contains an older holder of a lane than this process", true)
	}
	return err
}

// wait returns how long the drainer may sleep unless it is woken.
func (d *Drainer) wait() time.Duration {
	next := d.pace.at
	switch {
	case d.trouble.inPause(time.Now()):
		return max(time.Until(d.pauseUntil()), 0)
	case d.reader.full || d.control.paused || d.pace.renewAt.Before(next):
		next = d.pace.renewAt
	case d.lanes.anyMore():
		return 0
	}
	if check := d.controlDue(); check.Before(next) {
		next = check
	}
	if rested := d.settle.nextRested(); !rested.IsZero() && rested.Before(next) {
		next = rested
	}
	if _, asks := d.scheduler.Asks(d.lease.members); !asks.IsZero() && asks.Before(next) {
		next = asks
	}
	if d.idle.active {
		return max(min(time.Until(next), idlePulse), 0)
	}
	return max(time.Until(next), 0)
}
