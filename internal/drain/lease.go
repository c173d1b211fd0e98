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

// lease is the component that says which lanes this process holds, and until when. Each member of
// the spool has its fair share: it takes lanes that no member holds, and hands back what it has too
// many of. It belongs to the goroutine of Run.
//
//	lanes.go       a lane, and how far it was read
//	standstill.go  a process that was suspended
//	others.go      members that do something else with the messages
type lease struct {
	*core
	settle  *settler // keeps the lanes of messages that are not settled
	others  otherMembers
	joined  bool // it was a member when it looked last: see enroll
	members int  // as the last read told it
	free    int  // lanes that no member holds
	// renewedAhead is how far the wall clock was ahead at the last renewal, see standstill.go.
	renewedAhead time.Duration
	stopping     bool // it wants no lanes any more
}

// upkeep renews the lease and reads which lanes this drainer holds. It takes or gives lanes so that
// each member has its fair share. The process may act until the lease time has passed since the
// moment before the renewal was sent. The database counts from a later moment, so it does not give
// the lanes to another process earlier. older is true if the database knows an older holder of a
// lane than this process does.
func (le *lease) upkeep(ctx context.Context, sent time.Time) (older bool, err error) {
	ahead, joins := le.scheduler.Ahead(sent), !le.joined
	if err := le.enroll(ctx); err != nil {
		return false, err
	}
	if err := le.acquire(ctx); err != nil {
		return false, err
	}
	if older, err = le.learn(ctx); older || err != nil {
		return older, err
	}
	if joins && le.joined && !le.stopping && len(le.lanes.held) == 0 {
		le.logger.Info("Postbox waits for lanes, which other processes hold: one that has crashed holds them until its lease ends",
			watermill.LogFields{"spool": le.spool.Name(), "lease": le.config.Lease.String()})
	}
	le.scheduler.ExtendSince(ahead, sent.Add(le.config.Lease))
	le.renewedAhead = ahead
	le.giveAway()
	if le.incomplete() {
		le.permit()
	}
	le.pace.renewAt = sent.Add(le.config.Renew)
	return older, le.others.compare(ctx, le)
}

// renewalDue reports whether the leases must be renewed, by either clock.
func (le *lease) renewalDue() bool {
	now := time.Now()
	return !now.Add(le.scheduler.StoodStill(le.renewedAhead, now)).Before(le.pace.renewAt)
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
func (le *lease) enroll(ctx context.Context) error {
	leave := le.stopping && len(le.lanes.held) == 0
	if leave {
		le.joined = false
		return le.enrolled(spool.Run(ctx, le.db, le.spool.Statements.Leave(le.member())))
	}
	statements := le.spool.Statements
	member := dialect.JoinParams{
		Member: le.member(), InFlight: le.heartbeat(), TTL: le.config.Lease.Microseconds(), NoShare: le.stopping,
	}
	if le.joined {
		renew := statements.Renew(member)
		renewed, err := spool.Affected(le.db.ExecContext(ctx, renew.Text, renew.Args...))
		if err != nil || renewed > 0 {
			return le.enrolled(err)
		}
		le.scheduler.LoseSlots()
		if err := le.execIsolated(ctx, statements.ReleaseAll(le.member())); err != nil {
			return le.enrolled(err)
		}
		if _, err := le.learn(ctx); err != nil { // that they are lost
			return err
		}
		le.joined = false
	}
	err := spool.Run(ctx, le.db, statements.Join(member))
	le.joined = err == nil
	return le.enrolled(err)
}

func (le *lease) enrolled(err error) error {
	if err != nil {
		return fmt.Errorf("renew the lease of spool %q: %w", le.spool.Name(), err)
	}
	return nil
}

// giveAway drops the waiting messages of the lanes beyond the share of this drainer. These lanes
// are handed back as soon as none of their messages is in memory.
func (le *lease) giveAway() {
	for _, e := range le.scheduler.HungEntries() { // also one that was begun under an earlier token
		le.keep(le.lanes.held[e.Message.Ref.Lane])
	}
	share := le.share()
	if le.config.Exclusive && le.lanes.held[0] == nil {
		share = 0 // another process has the first lane: release all lanes
	}
	leaving := le.lanes.beyondShare(share, le.settle.keptLanes())
	if len(leaving) == 0 {
		return
	}
	for _, number := range leaving {
		le.lanes.held[number].leaving = true
	}
	for _, m := range le.scheduler.Drop(leaving) { // they are read again if the lane stays after all
		le.lanes.unexpose(m)
	}
	le.scheduler.Signal()
}

// incomplete reports whether another process still holds some of the lanes of an exclusive drainer.
func (le *lease) incomplete() bool {
	return le.config.Exclusive && len(le.lanes.numbers()) < dialect.Lanes
}

// permit lets messages be handed out, unless operators have paused the spool, or lanes are missing.
// When missing lanes arrive, permit waits until they have been read, so that a batch can contain
// messages of all lanes.
func (le *lease) permit() {
	le.scheduler.Pause(le.control.paused || le.incomplete())
}

// heartbeat returns what operators see of this drainer.
func (le *lease) heartbeat() string {
	beat := spool.Heartbeat{InFlight: le.scheduler.InFlight(), Limits: le.configured.Limits, LongCall: le.longCall(), Work: le.config.Work}
	if le.config.Circuits != nil {
		beat.Outages, beat.Tries = le.config.Circuits().Outages(), le.config.Circuits().Tries()
	}
	return beat.Encode()
}

// share returns the number of lanes that this drainer should have: none once it stops. A drainer
// that works alone should have all lanes if it holds the first one, and otherwise that one, besides
// those that it keeps.
func (le *lease) share() int {
	switch {
	case le.stopping:
		return 0
	case !le.config.Exclusive:
		return fairShare(le.members)
	case le.lanes.held[0] != nil:
		return dialect.Lanes
	default:
		return 1 + len(le.settle.keptLanes())
	}
}

// unfair reports whether lanes should change hands. If one drainer works alone, others ignore free
// lanes while another process holds the first lane. Otherwise they would take and release them
// again and again.
func (le *lease) unfair() bool {
	if le.config.Exclusive && le.lanes.held[0] == nil {
		return le.free == dialect.Lanes
	}
	share := le.share()
	return len(le.lanes.numbers()) < share && le.free > 0 || len(le.lanes.beyondShare(share, le.settle.keptLanes())) > 0
}

// observeMembers takes in how many processes share how many free lanes.
func (le *lease) observeMembers(found *page) {
	le.free, le.members = found.free, found.members
	if le.unfair() {
		le.pace.renewAt = time.Time{}
	}
}

// tokenSpread makes it unlikely that two holders get the same token of a lane. A promoted standby
// does not know the last tokens that its primary issued. Because tokens depend on the clock, in
// microseconds, and on chance, the standby issues others.
const tokenSpread = 1_000_000

// acquire takes free lanes up to the fair share, after it has deleted the members whose leases are
// over. That is no transaction: a process that was cut off within it would keep the rows locked,
// and all others from taking lanes, until the server ends its session.
func (le *lease) acquire(ctx context.Context) error {
	wanted := le.share() - len(le.lanes.held)
	if wanted <= 0 {
		return nil
	}
	err := spool.Run(ctx, le.db, le.spool.Statements.ExpireMembers(le.id.Load()))
	if err == nil {
		err = le.take(ctx, dialect.AcquireParams{
			Member: le.member(), Limit: wanted,
			Later: 1 + rand.Int64N(tokenSpread), //nolint:gosec // the number need not be secret
		})
	}
	if err != nil {
		return fmt.Errorf("take lanes of spool %q: %w", le.spool.Name(), err)
	}
	return nil
}

func (le *lease) take(ctx context.Context, lanes dialect.AcquireParams) error {
	statements := le.spool.Statements
	search := statements.FreeLanes(le.id.Load(), lanes.Limit)
	if search.Text == "" {
		return spool.Run(ctx, le.db, statements.Acquire(lanes))
	}
	return spool.InTx(ctx, le.db, statements, func(tx *sql.Tx) error {
		free, err := le.freeLanes(ctx, tx, search)
		if err != nil || len(free) == 0 {
			return err
		}
		locked, err := spool.SelectIDs(ctx, tx, statements.LockLanes(le.id.Load(), free))
		if err != nil || len(locked) == 0 {
			return err
		}
		lanes.Locked = slices.Sorted(maps.Keys(locked))
		return spool.Run(ctx, tx, statements.Acquire(lanes))
	})
}

func (le *lease) freeLanes(ctx context.Context, tx *sql.Tx, search dialect.Query) (free []dialect.HeldLane, err error) {
	err = spool.Each(ctx, tx, search, func(scan spool.Scan) error {
		lane := dialect.HeldLane{Spool: le.id.Load()}
		err := scan(&lane.Lane, &lane.Token)
		free = append(free, lane)
		return err
	})
	return free, err
}

// learn reads from the database which lanes this drainer holds. older is true if one of them has an
// older token there.
func (le *lease) learn(ctx context.Context) (older bool, err error) {
	found := map[int]*lane{}
	err = spool.Each(ctx, le.db, le.spool.Statements.Held(le.member()), func(scan spool.Scan) error {
		l := &lane{}
		err := scan(&l.number, &l.token, &l.suspect)
		if l.suspect {
			l.exposedToRead = pagesInMemory * le.config.PageSize // the number of messages that the previous holder may have had in memory, and so may have started
		}
		found[l.number] = l
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read leases of spool %q: %w", le.spool.Name(), err)
	}
	before := len(le.lanes.held)
	older = le.lanes.older(found)
	lost := le.lanes.replace(found)
	le.configured.Meter.Holds(len(le.lanes.held), len(lost))
	if len(lost) > 0 {
		le.scheduler.Drop(lost)
		le.logger.Info("Postbox lost lanes: their leases ran out; if it goes on, set SetMaxOpenConns to the size of the pool behind it",
			watermill.LogFields{"spool": le.spool.Name(), "lanes": lost})
	}
	if len(found) > before-len(lost) {
		le.pace.now() // read the new lanes immediately
		le.pace.slowStart.Begin()
	}
	return older, nil
}

// releaseLeaving hands back the leaving lanes that have no message in memory any more.
func (le *lease) releaseLeaving(ctx context.Context) error {
	var free []int
	for number, l := range le.lanes.held {
		if l.leaving && le.scheduler.InLane(number) == 0 {
			free = append(free, number)
		}
	}
	return le.release(ctx, free)
}

func (le *lease) release(ctx context.Context, lanes []int) error {
	if len(lanes) == 0 {
		return nil
	}
	slices.Sort(lanes)
	query := le.spool.Statements.Release(le.id.Load(), le.config.Holder, lanes)
	if err := le.execIsolated(ctx, query); err != nil {
		return fmt.Errorf("hand back lanes of spool %q: %w", le.spool.Name(), err)
	}
	for _, number := range lanes {
		delete(le.lanes.held, number)
	}
	le.configured.Meter.Holds(len(le.lanes.held), 0)
	return le.invite(ctx)
}

// invite makes the other members look for free lanes now.
func (le *lease) invite(ctx context.Context) error {
	le.spool.Wake()
	return le.spool.Notify(ctx, le.db)
}

// isConfiguration reports whether an error remains until the configuration is changed or the
// process is restarted.
func isConfiguration(err error) bool {
	return errors.Is(err, spool.ErrName) || errors.Is(err, ErrReplaced) || errors.Is(err, dialect.ErrDeployment)
}
