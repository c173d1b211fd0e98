package drain

import (
	"context"
	"database/sql"
	"encoding/json"
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

// upkeep renews the leases, learns which lanes this drainer holds, and takes or gives lanes so that each member
// has its fair share. The process may act until the lease time has passed since before the renewal was sent:
// the database counts from a later moment, so it gives the lanes to no other process earlier.
func (d *Drainer) upkeep(ctx context.Context) error {
	sent := time.Now()
	ahead := d.scheduler.Ahead(sent)
	statements := d.spool.Statements
	lease := d.config.Lease.Microseconds()
	if err := d.enroll(ctx); err != nil {
		return err
	}
	if err := d.execIsolated(ctx, statements.Renew(d.member(), lease)); err != nil {
		return fmt.Errorf("renew leases of spool %q: %w", d.spool.Name(), err)
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
		d.renewAt = sent.Add(d.config.Renew)
	}
	return nil
}

// member is how the database knows this drainer.
func (d *Drainer) member() dialect.Member {
	return dialect.Member{Spool: d.id, Holder: d.config.Holder}
}

// enroll counts this drainer among the members that share the lanes. One that stops leaves them, so that the others take its lanes.
func (d *Drainer) enroll(ctx context.Context) error {
	if d.stopping {
		if err := spool.Run(ctx, d.db, d.spool.Statements.Leave(d.member())); err != nil {
			return fmt.Errorf("leave spool %q: %w", d.spool.Name(), err)
		}
		return nil
	}
	join := dialect.JoinParams{Member: d.member(), InFlight: d.inFlightText(), TTL: d.config.Lease.Microseconds()}
	if err := spool.Run(ctx, d.db, d.spool.Statements.Join(join)); err != nil {
		return fmt.Errorf("renew membership of spool %q: %w", d.spool.Name(), err)
	}
	return nil
}

// giveAway drops the waiting messages of the lanes beyond the share of this drainer. These lanes are handed back as soon as none of their messages is in memory.
func (d *Drainer) giveAway() {
	share := d.share()
	if d.config.Exclusive && d.lanes.held[0] == nil {
		share = 0 // another process got the first one: let go
	}
	leaving := d.lanes.surplus(share, d.held.lanes())
	if len(leaving) == 0 {
		return
	}
	for _, number := range leaving {
		d.lanes.held[number].leaving = true
	}
	d.scheduler.Drop(leaving)
	d.scheduler.Signal()
}

// moveStrays brings messages to light that wait where no read looks for them. Where it fails, the drainer is hindered, and renews its leases again
// after each pause until this works too. Meanwhile it reads.
func (d *Drainer) moveStrays(ctx context.Context) error {
	statements := d.spool.Statements
	if statements.MoveStrays == "" {
		return nil
	}
	var found int
	err := d.db.QueryRowContext(ctx, statements.SeekStrays, d.id).Scan(&found)
	if err == nil && found > 0 {
		err = spool.InTx(ctx, d.db, statements, func(tx *sql.Tx) error {
			_, err := spool.Moved(ctx, tx, dialect.Query{Text: statements.MoveStrays, Args: []any{d.id}})
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("move messages of spool %q that wait among the ready ones: %w", d.spool.Name(), err)
	}
	return nil
}

// incomplete says that another process still has some of the lanes that one drainer shall have all of.
func (d *Drainer) incomplete() bool {
	return d.config.Exclusive && len(d.lanes.numbers()) < d.spool.Lanes()
}

// permit lets messages be handed out, unless operators have paused the spool, or lanes are missing. When these have come,
// that is after they have been read, so that a batch finds its messages in all of them.
func (d *Drainer) permit() {
	d.scheduler.Pause(d.control.paused || d.incomplete())
}

func (d *Drainer) inFlightText() string {
	text, err := json.Marshal(d.scheduler.InFlight())
	if err != nil {
		return "{}" // a map of words to numbers always has a JSON
	}
	return string(text)
}

// share is the number of lanes that this drainer should have: none once it stops. Where one has all, it is the one with the first lane.
func (d *Drainer) share() int {
	switch {
	case d.stopping:
		return 0
	case !d.config.Exclusive:
		return fairShare(d.spool.Lanes(), d.members)
	case d.lanes.held[0] != nil:
		return d.spool.Lanes()
	default:
		return 1
	}
}

// unfair says whether lanes should change hands. Where one has all, the others leave alone what is free while another process
// has the first lane: they would take it and let go of it, again and again.
func (d *Drainer) unfair() bool {
	if d.config.Exclusive && d.lanes.held[0] == nil {
		return d.free == d.spool.Lanes()
	}
	share := d.share()
	return len(d.lanes.numbers()) < share && d.free > 0 || len(d.lanes.surplus(share, d.held.lanes())) > 0
}

// tokenSpread makes it unlikely that two holders have the same token of a lane: a promoted standby does not know the last
// ones that its primary gave out. By the clock, in microseconds, and by chance it gives out others.
const tokenSpread = 1_000_000

// acquire takes free lanes up to the fair share.
func (d *Drainer) acquire(ctx context.Context) error {
	wanted := d.share() - len(d.lanes.held)
	if wanted <= 0 {
		return nil
	}
	take := dialect.AcquireParams{
		Member: d.member(), TTL: d.config.Lease.Microseconds(), Limit: wanted,
		Later: 1 + rand.Int64N(tokenSpread), //nolint:gosec // it is no secret
	}
	var err error
	if search := d.spool.Statements.FreeLanes(d.id, wanted); search.Text == "" {
		err = spool.Run(ctx, d.db, d.spool.Statements.Acquire(take))
	} else {
		err = spool.InTx(ctx, d.db, d.spool.Statements, func(tx *sql.Tx) error {
			free, err := spool.SelectIDs(ctx, tx, search)
			if err != nil || len(free) == 0 {
				return err
			}
			take.Free = slices.Sorted(maps.Keys(free))
			return spool.Run(ctx, tx, d.spool.Statements.Acquire(take))
		})
	}
	if err != nil {
		return fmt.Errorf("take lanes of spool %q: %w", d.spool.Name(), err)
	}
	return nil
}

// learn reads which lanes this drainer holds.
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
			l.suspects = pagesInMemory * d.config.PageSize // what a drainer has in memory, and so can have begun
		}
		found[l.number] = l
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read leases of spool %q: %w", d.spool.Name(), err)
	}
	before := len(d.lanes.held)
	older := d.lanes.older(found)
	lost := d.lanes.replace(found)
	if len(lost) > 0 {
		d.scheduler.Drop(lost)
		d.logger.Info("Postbox lost lanes: their leases ran out", watermill.LogFields{"spool": d.spool.Name(), "lanes": lost})
	}
	if older {
		d.startOver("it knows an older holder of a lane than this process", true)
	}
	if len(found) > before-len(lost) {
		d.pollAt = time.Time{} // new lanes want to be read
		d.slowStart.Begin()
	}
	return nil
}

// releaseLeaving hands back the leaving lanes of which nothing is in memory any more.
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
	query := d.spool.Statements.Release(d.id, d.config.Holder, lanes)
	if err := d.execIsolated(ctx, query); err != nil {
		return fmt.Errorf("hand back lanes of spool %q: %w", d.spool.Name(), err)
	}
	for _, number := range lanes {
		delete(d.lanes.held, number)
	}
	return d.invite(ctx)
}

// leave hands back all lanes, but for those in which a handler still runs: its message is treated as after a crash, once the lease has run out.
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
	return d.release(ctx, lanes)
}

// invite lets the other members look for free lanes now.
func (d *Drainer) invite(ctx context.Context) error {
	d.spool.Wake()
	return d.spool.Notify(ctx, d.db)
}

// isConfiguration says whether an error stays until the configuration is changed or the process is restarted.
func isConfiguration(err error) bool {
	return errors.Is(err, spool.ErrLanes) || errors.Is(err, spool.ErrName) || errors.Is(err, ErrReplaced) || errors.Is(err, dialect.ErrDeployment)
}
