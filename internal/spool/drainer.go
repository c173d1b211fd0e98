package spool

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Drainer drains the lanes that it holds of a spool. Any number of them, in any number of processes, share the
// lanes of one spool.
type Drainer struct {
	db      *sql.DB
	spool   *Spool
	handler Handler
	config  Config
	logger  watermill.LoggerAdapter

	// The rest belongs to the goroutine of Run, but for the scheduler and the channels.
	id        int64
	prepared  *Prepared
	lanes     *laneSet
	horizon   horizon
	scheduler *scheduler
	unsettled []*entry
	// passedOver are the topics that the last read left out, and so may have read beyond.
	passedOver []string
	renewAt    time.Time
	pollAt     time.Time
	pause      time.Duration // between two looks that find nothing
	members    int
	free       int
	away       bool // the database is
	full       bool // the memory is: nothing is read until something is settled
	stopping   bool

	rescan    chan struct{}
	ready     chan struct{}
	readyOnce sync.Once
}

// NewDrainer returns a drainer, which does nothing until Run.
func NewDrainer(db *sql.DB, spool *Spool, handler Handler, config Config, logger watermill.LoggerAdapter) *Drainer {
	return &Drainer{
		db: db, spool: spool, handler: handler, config: config, logger: logger,
		prepared: NewPrepared(db), lanes: newLaneSet(), scheduler: newScheduler(config.BatchSize),
		rescan: make(chan struct{}, 1), ready: make(chan struct{}),
	}
}

// Ready is closed when the drainer has looked at its lanes for the first time.
func (d *Drainer) Ready() <-chan struct{} { return d.ready }

// Rescan makes the drainer look again at what it passed over because its topic was excluded.
func (d *Drainer) Rescan() {
	select {
	case d.rescan <- struct{}{}:
	default:
	}
}

// Wake makes the drainer look for new messages now.
func (d *Drainer) Wake() { ring(d.spool.bell) }

// InFlight returns how many messages of each topic are being handled by this drainer.
func (d *Drainer) InFlight() map[string]int { return d.scheduler.inFlight() }

// Run drains until ctx ends, and then stops cleanly: it takes nothing more, lets the handlers that run end
// within the configured time with a live context, settles them and hands its lanes back. It fails where the
// spool cannot be opened for a reason that waiting does not cure.
func (d *Drainer) Run(ctx context.Context) error {
	rings, silence := listen(d.spool.bell)
	defer silence()
	defer d.prepared.Close()

	live := context.WithoutCancel(ctx)
	if err := d.open(ctx, live); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	handling, abort := context.WithCancel(live)
	defer abort()
	workers := d.startWorkers(handling)

	d.pause = d.config.PollMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		d.step(live)
		timer.Reset(d.wait())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.scheduler.changed:
		case <-rings:
			d.pollAt, d.pause = time.Time{}, d.config.PollMin
		case <-d.rescan:
			d.pollAt = time.Time{}
		}
	}
	d.stop(live, workers, abort)
	return nil
}

// open finds the spool, waiting for a database that is away.
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
			return nil
		}
		if kind := dialect.Classify(err); kind == dialect.MissingTable || isConfiguration(err) {
			return err
		}
		d.databaseAway(err)
		wait.Reset(d.config.PollMax)
	}
}

func (d *Drainer) tryOpen(live context.Context) error {
	ctx, cancel := context.WithTimeout(live, statementTimeout)
	defer cancel()
	id, err := d.spool.Open(ctx, d.db)
	if err != nil {
		return err
	}
	if _, err := d.db.ExecContext(ctx, d.spool.statements.FillLanes, id, d.spool.lanes); err != nil {
		return fmt.Errorf("make lanes of spool %q: %w", d.spool.name, err)
	}
	if _, err := d.db.ExecContext(ctx, d.spool.statements.DropMembers, id); err != nil {
		return fmt.Errorf("forget old members of spool %q: %w", d.spool.name, err)
	}
	d.id = id
	return nil
}

func (d *Drainer) startWorkers(ctx context.Context) *sync.WaitGroup {
	var workers sync.WaitGroup
	for range d.config.Workers {
		workers.Go(func() { d.work(ctx) })
	}
	return &workers
}

// step does what is due, in the order that the scheduler relies on: settle, then fetch.
func (d *Drainer) step(live context.Context) {
	ctx, cancel := context.WithTimeout(live, statementTimeout)
	defer cancel()
	err := d.settleFinished(ctx)
	if err == nil && !time.Now().Before(d.renewAt) {
		err = d.upkeep(ctx)
	}
	if err == nil {
		err = d.releaseLeaving(ctx)
	}
	if err == nil {
		err = d.look(ctx)
	}
	if dialect.Classify(err) == dialect.Conflict { // with another drainer: next time
		d.pollAt = time.Now().Add(d.config.PollMin)
		return
	}
	if err != nil {
		d.databaseAway(err)
		return
	}
	if d.away {
		d.away = false
		d.logger.Info("Postbox reaches its database again", watermill.LogFields{"spool": d.spool.name})
	}
}

// databaseAway logs the first error of a row of them and slows down.
func (d *Drainer) databaseAway(err error) {
	d.pollAt = time.Now().Add(d.config.PollMax)
	fields := watermill.LogFields{"spool": d.spool.name}
	if d.away {
		d.logger.Debug("Postbox cannot reach its database: "+err.Error(), fields)
		return
	}
	d.away = true
	d.logger.Error("Postbox cannot reach its database and goes on trying", err, fields)
}

// wait returns how long there is nothing to do unless something happens.
func (d *Drainer) wait() time.Duration {
	next := d.pollAt
	switch {
	case d.away: // only time helps
	case d.full || d.renewAt.Before(next):
		next = d.renewAt
	case len(d.lanes.hungry()) > 0:
		return 0
	}
	return max(time.Until(next), 0)
}

// settleFinished settles what the workers finished. What cannot be settled now is kept for the next step: until
// then nothing is fetched, since the database would hand out what must wait.
func (d *Drainer) settleFinished(ctx context.Context) error {
	d.unsettled = append(d.unsettled, d.scheduler.takeFinished()...)
	if len(d.unsettled) == 0 {
		return nil
	}
	if err := d.settle(ctx, d.unsettled); err != nil {
		return err
	}
	for _, e := range d.unsettled {
		ref := e.message.Ref
		// What was put back must be found again, and so must what stood behind a message that has
		// given its key free.
		if e.outcome.Verdict == Postpone || ref.State == dialect.StateRetrying {
			d.lanes.lower(ref.Lane, ref.ID)
			d.pollAt = time.Time{}
		}
	}
	d.scheduler.settled(d.unsettled)
	d.unsettled = nil
	return nil
}

// look fetches when there is room and it is time.
func (d *Drainer) look(ctx context.Context) error {
	size, _ := d.scheduler.size()
	room := 2*d.config.PageSize - size
	lanes := d.lanes.hungry()
	everything := !time.Now().Before(d.pollAt) || len(lanes) == 0
	d.full = room < d.config.PageSize
	if d.full || (everything && time.Now().Before(d.pollAt)) {
		return nil
	}
	if everything {
		lanes = d.lanes.numbers()
	}
	params := dialect.FetchParams{
		Spool: d.id, PerLane: max(room/max(len(lanes), 1), 1), Inline: d.config.InlineBytes,
		Known: d.scheduler.known(), Excluded: d.handler.Excluded(),
	}
	d.readAgain(params.Excluded)
	started := time.Now()
	params.Mark = d.horizon.wantsMark(started)
	sweep := everything && d.lanes.sweepDue(started)
	for _, number := range lanes {
		cursor := dialect.Cursor{Lane: number, After: d.lanes.held[number].hint}
		if sweep {
			cursor.After = 0
		}
		params.Cursors = append(params.Cursors, cursor)
	}
	if everything {
		params.Due = room
	}
	found, err := d.fetch(ctx, params)
	if err != nil {
		return err
	}
	if sweep {
		d.lanes.swept(time.Now(), time.Since(started))
	}
	d.takeIn(params, found)
	d.plan(everything, len(found.messages) > 0)
	d.readyOnce.Do(func() { close(d.ready) })
	return nil
}

// readAgain goes back to the beginning when a topic is back that was passed over: its messages must be read before
// newer ones of their keys, and this read may well come before the call of Rescan.
func (d *Drainer) readAgain(excluded []string) {
	back := func(topic string) bool { return !slices.Contains(excluded, topic) }
	if slices.ContainsFunc(d.passedOver, back) {
		d.lanes.rewind()
	}
}

// takeIn gives what was found to the workers and remembers how far each lane was read.
func (d *Drainer) takeIn(params dialect.FetchParams, found *page) {
	d.passedOver = params.Excluded
	safe := d.horizon.observe(found.lowest, found.newest)
	if params.Mark {
		d.horizon.set(found.next, time.Now())
	}
	for _, cursor := range params.Cursors {
		l := d.lanes.held[cursor.Lane]
		l.hungry = found.perLane[cursor.Lane] >= params.PerLane
		upTo := safe
		if l.hungry {
			upTo = min(safe, found.last[cursor.Lane])
		}
		l.hint = max(cursor.After, upTo)
	}
	for _, m := range d.scheduler.load(found.messages) {
		d.lanes.lower(m.Ref.Lane, m.Ref.ID)
	}
	d.free, d.members = found.free, found.members
	if d.unfair() {
		d.renewAt = time.Time{}
	}
}

// plan chooses the time of the next look at all lanes: soon after one that found something, later and later
// after those that did not.
func (d *Drainer) plan(everything, something bool) {
	switch {
	case something:
		d.pause = d.config.PollMin
	case everything:
		d.pause = min(2*d.pause, d.config.PollMax)
	}
	if everything {
		d.pollAt = time.Now().Add(d.pause)
	}
}

// stop ends a run.
func (d *Drainer) stop(live context.Context, workers *sync.WaitGroup, abort context.CancelFunc) {
	d.stopping = true
	d.scheduler.stop()
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	deadline := time.NewTimer(d.config.Close)
	defer deadline.Stop()
	renew := time.NewTicker(d.config.Renew)
	defer renew.Stop()
	for waiting := true; waiting; {
		select {
		case <-ended:
			waiting = false
		case <-deadline.C:
			d.logger.Error("Postbox cancels handlers that did not end in time", context.DeadlineExceeded, watermill.LogFields{
				"spool": d.spool.name, "close_timeout": d.config.Close.String(),
			})
			abort()
			<-ended
			waiting = false
		case <-renew.C:
			d.whileStopping(live, d.upkeep)
		case <-d.scheduler.changed:
			d.whileStopping(live, d.settleFinished)
		}
	}
	d.whileStopping(live, d.settleFinished)
	d.whileStopping(live, d.leave)
}

// whileStopping runs one piece of work. Its failure loses nothing: what is not settled is handled again, and
// leases end by themselves.
func (d *Drainer) whileStopping(live context.Context, work func(context.Context) error) {
	ctx, cancel := context.WithTimeout(live, min(statementTimeout, d.config.Close))
	defer cancel()
	if err := work(ctx); err != nil {
		d.logger.Error("Postbox could not finish while stopping", err, watermill.LogFields{"spool": d.spool.name})
	}
}
