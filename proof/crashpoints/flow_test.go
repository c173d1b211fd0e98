package crashpoints_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// patience is how long anything may take, on a machine that has much else to do.
	patience = time.Minute
	// tries is how often a point is aimed at: whether a read in vain comes a fourth time is a
	// matter of luck.
	tries = 4
)

// flow is something that processes do, and what must come of it.
type flow struct {
	name string
	// least is the number of calls that it makes at least.
	least int
	// empty: it begins with a database without tables.
	empty bool
	// lingers: a dead process may take its time to give up, which nobody waits for.
	lingers bool
	// setUp, if set, is done once for all lives. No transaction is open beside them then.
	setUp func(t *testing.T, database *testdb.Database)
	// prepare makes what is there before.
	prepare func(ctx context.Context, p *process) error
	// life is what the process does that meets its fate.
	life func(ctx context.Context, p *process) error
	// instant, if set, looks at what is there when the process has met it.
	instant func(c *check)
	// after is what a new process does then; life, if it is not set.
	after func(ctx context.Context, p *process) error
	// check looks at what came out.
	check func(c *check)
}

// database is a kind of database.
type database struct {
	name string
	open func(t *testing.T) *testdb.Database
}

var databases = []database{
	{"sqlite", sqlite}, {"postgres", testdb.Postgres}, {"mariadb", testdb.MySQL},
}

// sqlite returns a database that does not wait for the disk: a process crashes here, and not the
// machine.
func sqlite(t *testing.T) *testdb.Database {
	t.Helper()
	database := testdb.SQLite(t)
	database.DSN = strings.Replace(database.DSN, "synchronous(FULL)", "synchronous(OFF)", 1)
	database.DB = database.Open(t)
	return database
}

// each runs the flows on each database.
func each(t *testing.T, flows ...flow) {
	t.Helper()
	eachDatabase(t, func(t *testing.T, d database) { on(t, d, flows...) })
}

// eachDatabase runs a test on each database; with the race detector on the quickest alone.
func eachDatabase(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	for _, d := range databases {
		if raceDetector && d.name != "sqlite" {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// on runs the flows on one database.
func on(t *testing.T, d database, flows ...flow) {
	t.Helper()
	for _, f := range flows {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := &survey{flow: f, database: d}
			if !f.empty {
				s.shared = d.open(t).Migrate(t)
				s.shared.Exec(t, createEffects(s.shared.Dialect))
				if f.setUp == nil {
					beside(t, s.shared)
				} else {
					f.setUp(t, s.shared)
				}
			}
			s.run(t)
		})
	}
}

// beside keeps a transaction open that has an id, as a report or a migration elsewhere does: then
// each drainer on PostgreSQL asks who writes, which would come now and then otherwise.
func beside(t *testing.T, database *testdb.Database) {
	t.Helper()
	if database.Dialect != postbox.PostgreSQL {
		return
	}
	tx, err := database.DB.Begin() //nolint:noctx // its end is the cleanup's
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tx.Rollback()) })
	_, err = tx.ExecContext(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
}

// survey goes through all points of a flow.
type survey struct {
	flow     flow
	database database
	shared   *testdb.Database // by all points, one after the other
	handle   *sql.DB          // of those processes that nothing happens to
	score    *score
	lives    sync.WaitGroup // of processes, which may outlast their death
}

func (s *survey) run(t *testing.T) {
	t.Helper()
	t.Cleanup(s.lives.Wait)
	unharmed := s.live(t, point{}, "")
	points := unharmed.passed()
	require.GreaterOrEqual(t, len(points), s.flow.least, "the flow does not do what it is for")
	s.score = report.add(s.database.name, s.flow.name)
	for _, at := range points {
		for _, f := range s.faults(at) {
			t.Run(fmt.Sprintf("%s %s", f, at), func(t *testing.T) { s.strike(t, at, f) })
		}
	}
	if s.exhaustive() {
		require.GreaterOrEqual(t, s.score.recovered, 2*s.flow.least, "each call is a point before and after it")
	}
	require.Positive(t, s.score.recovered)
	if os.Getenv(everything) == "all" {
		_, _ = fmt.Fprintf(os.Stdout, "%s, %s: %s\n", s.database.name, s.flow.name, s.score) // it goes on for long: who waits sees it move
	}
}

// everything is the variable that `make crashpoints` sets. Without it, servers, and the race
// detector, which take their time, are spared most: there each flow meets each kind of call whose
// effect lasts once, after that effect, and each kind of other call, upkeep included, is met in
// some flow.
const everything = "POSTBOX_CRASHPOINTS"

func (s *survey) exhaustive() bool {
	return s.database.name == "sqlite" && !raceDetector || os.Getenv(everything) == "all"
}

// faults are those that can happen at a point.
func (s *survey) faults(at point) []fault {
	inMemory := s.database.name == "sqlite" || strings.HasPrefix(at.call, inProcess) // no connection is lost
	switch {
	case !s.exhaustive() && at.nth > 1:
		return nil
	case !s.exhaustive() && inMemory:
		return []fault{crashAfter}
	case !s.exhaustive():
		return []fault{crashAfter, lostAfter}
	case inMemory:
		return []fault{crashBefore, crashAfter}
	}
	return []fault{crashBefore, crashAfter, lostBefore, lostAfter}
}

// strike lets a process meet its fate at one point.
func (s *survey) strike(t *testing.T, at point, f fault) {
	t.Helper()
	kind := fmt.Sprintf("%s: %s %s", s.database.name, f, at.call)
	if !s.exhaustive() && !at.lasts && !report.claim(kind) {
		s.score.elsewhere++
		return
	}
	s.score.points++
	for range tries {
		if s.live(t, at, f).hasStruck() {
			report.met(s.score, kind) // and recovered, or the test would have ended
			return
		}
	}
	report.missed(s.score, kind)
}

// live runs the flow once, from its beginning to the last oracle.
func (s *survey) live(t *testing.T, at point, f fault) *fate {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	w := s.world(t)
	unharmed := s.heir(t, w)
	if s.flow.prepare != nil {
		require.NoError(t, s.flow.prepare(ctx, unharmed), "prepare")
	}

	fated := newFate(at, f)
	s.meet(ctx, t, w.process(t, fated))
	if fated.isDead() && !s.flow.empty {
		w.timePasses(t)
	}
	c := &check{T: t, w: w, struck: fated.hasStruck()}
	if s.flow.instant != nil {
		s.flow.instant(c)
	}
	after := s.flow.after
	if after == nil {
		after = s.flow.life
	}
	require.NoError(t, after(ctx, unharmed), "recover")
	s.flow.check(c)
	return fated
}

// meet runs the life of a process to its end.
func (s *survey) meet(ctx context.Context, t *testing.T, p *process) {
	t.Helper()
	ctx, p.fate.end = context.WithCancel(ctx)
	ended := make(chan error, 1)
	s.lives.Go(func() {
		defer p.fate.end()
		ended <- s.flow.life(ctx, p)
	})
	<-ctx.Done()
	if p.fate.isDead() {
		_ = p.db.Close() // a stop would wait for the database to answer again
		if s.flow.lingers {
			return
		}
	}
	if err := <-ended; !p.fate.isDead() {
		require.NoError(t, err, "the process lives on, and must get through")
	}
}

// heir returns a process that nothing happens to. Where the database stays the same, its handle
// does, to save time.
func (s *survey) heir(t *testing.T, w *world) *process {
	t.Helper()
	switch {
	case s.shared == nil:
		return w.process(t, newFate(point{}, ""))
	case s.handle == nil:
		s.handle = s.shared.Open(t)
		s.handle.SetMaxOpenConns(1)
	}
	return &process{w: w, db: s.handle, fate: newFate(point{}, "")}
}

// world returns a world without messages.
func (s *survey) world(t *testing.T) *world {
	t.Helper()
	database := s.shared
	if database == nil {
		database = s.database.open(t)
	} else {
		wipe(t, database)
	}
	return newWorld(database)
}
