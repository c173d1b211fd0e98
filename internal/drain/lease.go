package drain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// upkeep renews the lease and reads which lanes this drainer holds. It takes or gives lanes so that
// each member has its fair share. The process may act until the lease time has passed since the
// moment before the renewal was sent. The database counts from a later moment, so it does not give
// the lanes to another process earlier.
func (d *Drainer) upkeep(ctx context.Context) error {
	sent := time.Now()
	d.stir(sent)
	ahead := d.scheduler.Ahead(sent)
	if err := d.enroll(ctx); err != nil {
		return err
	}
	if err := d.acquire(ctx); err != nil {
		return err
	}
	if err := d.learn(ctx); err != nil {
		return err
	}
	d.scheduler.ExtendSince(ahead, sent.Add(d.config.Lease))
	d.renewedAhead = ahead
	d.giveAway()
	if d.incomplete() {
		d.permit()
	}
	if d.strays = d.moveStrays(ctx); d.strays == nil {
		d.pace.renewAt = sent.Add(d.config.Renew)
	}
	return d.others.compare(ctx, d)
}

// member returns the identity of this drainer in the database.
func (d *Drainer) member() dialect.Member {
	return dialect.Member{Spool: d.id.Load(), Holder: d.config.Holder}
}

// enroll renews the membership of this drainer, which is the lease of all its lanes. A drainer that
// stops has no share of the lanes, so that the others take them. A drainer that stops
// leaves the members when it holds no lane any more.
//
// The renewal changes no row if another process has deleted the membership. The lease was over
// then, and the other process may be taking the lanes at this moment. It has read the members
// before. So this drainer first releases all lanes that still name it as their holder, and joins
// the members again after that. Otherwise it would count as the holder of a lane that the other
// process takes. The released lanes are suspect, because this process may still handle messages of
// them.
func (d *Drainer) enroll(ctx context.Context) error {
	leave := d.stopping && len(d.lanes.held) == 0
	if leave {
		d.joined = false
		return d.enrolled(spool.Run(ctx, d.db, d.spool.Statements.Leave(d.member())))
	}
	statements := d.spool.Statements
	member := dialect.JoinParams{
		Member: d.member(), InFlight: d.heartbeat(), TTL: d.config.Lease.Microseconds(), NoShare: d.stopping,
	}
	if d.joined {
		renew := statements.Renew(member)
		renewed, err := spool.Affected(d.db.ExecContext(ctx, renew.Text, renew.Args...))
		if err != nil || renewed > 0 {
			return d.enrolled(err)
		}
		d.scheduler.LoseSlots()
		if err := d.execIsolated(ctx, statements.ReleaseAll(d.member())); err != nil {
			return d.enrolled(err)
		}
		if err := d.learn(ctx); err != nil { // that they are lost
			return err
		}
		d.joined = false
	}
	err := spool.Run(ctx, d.db, statements.Join(member))
	d.joined = err == nil
	return d.enrolled(err)
}

func (d *Drainer) enrolled(err error) error {
	if err != nil {
		return fmt.Errorf("renew the lease of spool %q: %w", d.spool.Name(), err)
	}
	return nil
}

// giveAway drops the waiting messages of the lanes beyond the share of this drainer. These lanes
// are handed back as soon as none of their messages is in memory.
func (d *Drainer) giveAway() {
	for _, e := range d.scheduler.Lost() { // also one that was begun under an earlier token
		d.keep(d.lanes.held[e.Message.Ref.Lane])
	}
	share := d.share()
	if d.config.Exclusive && d.lanes.held[0] == nil {
		share = 0 // another process has the first lane: release all lanes
	}
	leaving := d.lanes.surplus(share, d.settle.keptLanes())
	if len(leaving) == 0 {
		return
	}
	for _, number := range leaving {
		d.lanes.held[number].leaving = true
	}
	for _, m := range d.scheduler.Drop(leaving) { // they are read again if the lane stays after all
		d.lanes.unexpose(m)
	}
	d.scheduler.Signal()
}

// moveStrays makes messages visible that are waiting where no read looks for them. If it fails, the
// drainer pauses, and renews its leases again after each pause until this works too. Meanwhile it
// reads.
func (d *Drainer) moveStrays(ctx context.Context) error {
	statements := d.spool.Statements
	if statements.MoveStrays == "" {
		return nil
	}
	var found int
	err := d.db.QueryRowContext(ctx, statements.SeekStrays, d.id.Load()).Scan(&found)
	if err == nil && found > 0 {
		err = spool.InTx(ctx, d.db, statements, func(tx *sql.Tx) error {
			_, err := spool.Moved(ctx, tx, dialect.Query{Text: statements.MoveStrays, Args: []any{d.id.Load()}})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("move messages of spool %q that wait among the ready ones: %w", d.spool.Name(), err)
	}
	return nil
}

// incomplete reports whether another process still holds some of the lanes of an exclusive drainer.
func (d *Drainer) incomplete() bool {
	return d.config.Exclusive && len(d.lanes.numbers()) < dialect.Lanes
}

// permit lets messages be handed out, unless operators have paused the spool, or lanes are missing.
// When missing lanes arrive, permit waits until they have been read, so that a batch can contain
// messages of all lanes.
func (d *Drainer) permit() {
	d.scheduler.Pause(d.control.paused || d.incomplete())
}

// heartbeat returns what operators see of this drainer.
func (d *Drainer) heartbeat() string {
	beat := spool.Heartbeat{InFlight: d.scheduler.InFlight(), Limits: d.configured.Limits, LongCall: d.longCall(), Work: d.config.Work}
	if d.config.Circuits != nil {
		beat.Outages = d.config.Circuits().Outages()
	}
	return beat.Encode()
}

// share returns the number of lanes that this drainer should have: none once it stops. A drainer
// that works alone should have all lanes if it holds the first one, and otherwise that one, besides
// those that it keeps.
func (d *Drainer) share() int {
	switch {
	case d.stopping:
		return 0
	case !d.config.Exclusive:
		return fairShare(d.members)
	case d.lanes.held[0] != nil:
		return dialect.Lanes
	default:
		return 1 + len(d.settle.keptLanes())
	}
}

// unfair reports whether lanes should change hands. If one drainer works alone, others ignore free
// lanes while another process holds the first lane. Otherwise they would take and release them
// again and again.
func (d *Drainer) unfair() bool {
	if d.config.Exclusive && d.lanes.held[0] == nil {
		return d.free == dialect.Lanes
	}
	share := d.share()
	return len(d.lanes.numbers()) < share && d.free > 0 || len(d.lanes.surplus(share, d.settle.keptLanes())) > 0
}

// tokenSpread makes it unlikely that two holders get the same token of a lane. A promoted standby
// does not know the last tokens that its primary issued. Because tokens depend on the clock, in
// microseconds, and on chance, the standby issues others.
const tokenSpread = 1_000_000

// acquire takes free lanes up to the fair share, after it has deleted the members whose leases are
// over. That is no transaction: a process that was cut off within it would keep the rows locked,
// and all others from taking lanes, until the server ends its session.
func (d *Drainer) acquire(ctx context.Context) error {
	wanted := d.share() - len(d.lanes.held)
	if wanted <= 0 {
		return nil
	}
	err := spool.Run(ctx, d.db, d.spool.Statements.ExpireMembers(d.id.Load()))
	if err == nil {
		err = d.take(ctx, dialect.AcquireParams{
			Member: d.member(), Limit: wanted,
			Later: 1 + rand.Int64N(tokenSpread), //nolint:gosec // the number need not be secret
		})
	}
	if err != nil {
		return fmt.Errorf("take lanes of spool %q: %w", d.spool.Name(), err)
	}
	return nil
}

func (d *Drainer) take(ctx context.Context, lanes dialect.AcquireParams) error {
	statements := d.spool.Statements
	search := statements.FreeLanes(d.id.Load(), lanes.Limit)
	if search.Text == "" {
		return spool.Run(ctx, d.db, statements.Acquire(lanes))
	}
	return spool.InTx(ctx, d.db, statements, func(tx *sql.Tx) error {
		free, err := d.freeLanes(ctx, tx, search)
		if err != nil || len(free) == 0 {
			return err
		}
		locked, err := spool.SelectIDs(ctx, tx, statements.LockLanes(d.id.Load(), free))
		if err != nil || len(locked) == 0 {
			return err
		}
		lanes.Locked = slices.Sorted(maps.Keys(locked))
		return spool.Run(ctx, tx, statements.Acquire(lanes))
	})
}

func (d *Drainer) freeLanes(ctx context.Context, tx *sql.Tx, search dialect.Query) (free []dialect.HeldLane, err error) {
	rows, err := tx.QueryContext(ctx, search.Text, search.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		lane := dialect.HeldLane{Spool: d.id.Load()}
		if err := rows.Scan(&lane.Lane, &lane.Token); err != nil {
			return nil, err
		}
		free = append(free, lane)
	}
	return free, rows.Err()
}

// learn reads from the database which lanes this drainer holds.
func (d *Drainer) learn(ctx context.Context) error {
	query := d.spool.Statements.Held(d.member())
	rows, err := d.db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return fmt.Errorf("read leases of spool %q: %w", d.spool.Name(), err)
	}
	defer func() { _ = rows.Close() }()
	found := map[int]*lane{}
	for rows.Next() {
		l := &lane{}
		if err := rows.Scan(&l.number, &l.token, &l.suspect); err != nil {
			return fmt.Errorf("read leases of spool %q: %w", d.spool.Name(), err)
		}
		if l.suspect {
			l.exposedToRead = pagesInMemory * d.config.PageSize // the number of messages that the previous holder may have had in memory, and so may have started
		}
		found[l.number] = l
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read leases of spool %q: %w", d.spool.Name(), err)
	}
	before := len(d.lanes.held)
	older := d.lanes.older(found)
	lost := d.lanes.replace(found)
	d.configured.Meter.Holds(len(d.lanes.held), len(lost))
	if len(lost) > 0 {
		d.scheduler.Drop(lost)
		d.logger.Info("Postbox lost lanes: their leases ran out; if it goes on, set SetMaxOpenConns to the size of the pool behind it",
			watermill.LogFields{"spool": d.spool.Name(), "lanes": lost})
	}
	if older {
		d.startOver("it contains an older holder of a lane than this process", true)
	}
	if len(found) > before-len(lost) {
		d.pace.now() // read the new lanes immediately
		d.slowStart.Begin()
	}
	return nil
}

// releaseLeaving hands back the leaving lanes that have no message in memory any more.
func (d *Drainer) releaseLeaving(ctx context.Context) error {
	var free []int
	for number, l := range d.lanes.held {
		if l.leaving && d.scheduler.InLane(number) == 0 {
			free = append(free, number)
		}
	}
	return d.release(ctx, free)
}

func (d *Drainer) release(ctx context.Context, lanes []int) error {
	if len(lanes) == 0 {
		return nil
	}
	slices.Sort(lanes)
	query := d.spool.Statements.Release(d.id.Load(), d.config.Holder, lanes)
	if err := d.execIsolated(ctx, query); err != nil {
		return fmt.Errorf("hand back lanes of spool %q: %w", d.spool.Name(), err)
	}
	for _, number := range lanes {
		delete(d.lanes.held, number)
	}
	d.configured.Meter.Holds(len(d.lanes.held), 0)
	return d.invite(ctx)
}

// leave hands back all lanes, except those in which a handler is still running. The message of such
// a handler is treated as after a crash, once the lease has expired.
func (d *Drainer) leave(ctx context.Context) error {
	if err := d.enroll(ctx); err != nil {
		return err
	}
	running := d.scheduler.RunningLanes()
	var lanes []int
	for number := range d.lanes.held {
		if !running[number] {
			lanes = append(lanes, number)
		}
	}
	if err := d.release(ctx, lanes); err != nil {
		return err
	}
	if err := d.enroll(ctx); err != nil { // it leaves, if no lane is left
		return err
	}
	return d.guard.excuse(ctx)
}

// invite makes the other members look for free lanes now.
func (d *Drainer) invite(ctx context.Context) error {
	d.spool.Wake()
	return d.spool.Notify(ctx, d.db)
}

// isConfiguration reports whether an error remains until the configuration is changed or the
// process is restarted.
func isConfiguration(err error) bool {
	return errors.Is(err, spool.ErrName) || errors.Is(err, ErrReplaced) || errors.Is(err, dialect.ErrDeployment)
}
