package measure

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"runtime"
	"syscall"
	"time"
)

// Stage is what a contender works on: an empty schema, and a clock.
type Stage struct {
	// DSN leads to the schema, which is its search path.
	DSN string
	// Setup is a handle for what is not measured.
	Setup *sql.DB
	// DB is the handle of what is measured.
	DB *sql.DB
	// Wire counts what goes over DB; a contender with a driver of its own dials through it.
	Wire *Wire
	// Elsewhere says that other processes do the work, so that what this one takes says nothing.
	Elsewhere bool
	// Quick asks for less.
	Quick bool

	schema  string
	admin   *sql.DB
	mariaDB *sql.DB // of a contender that works on MariaDB: the counters are that server's
	profile *profile
	// serverCPU returns the processor time that the server has taken.
	serverCPU func() time.Duration
	before    counters
	began     time.Time
	sample    Sample
}

// counters are those of the whole server, or of this process.
type counters struct {
	wal, commits, statements, roundTrips int64
	allocs                               uint64
	clientCPU, serverCPU                 time.Duration
}

// Scale returns full, or quick where a quick run is wanted.
func (s *Stage) Scale(full, quick int) int {
	if s.Quick {
		return quick
	}
	return full
}

// Schema is the name of the schema that the contender works on.
func (s *Stage) Schema() string { return s.schema }

// Start begins the measurement.
func (s *Stage) Start(ctx context.Context) error {
	if err := s.Setup.Close(); err != nil {
		return err
	}
	if err := s.waitGone(ctx, setupName); err != nil { // a connection that ends says what it did, which is not to be measured
		return err
	}
	runtime.GC() // what came before is not this one's garbage
	if err := s.profile.start(); err != nil {
		return err
	}
	var err error
	if s.before, err = s.read(ctx); err != nil {
		return err
	}
	s.began = time.Now()
	return nil
}

// Stop stops the clock: so many messages have been handled. What is still written about them, until
// the contender has closed, is counted, and its time is not.
func (s *Stage) Stop(messages int) error {
	elapsed := time.Since(s.began)
	s.sample.Messages, s.sample.Elapsed = messages, elapsed
	s.Record(Rate, float64(messages)/elapsed.Seconds())
	if s.mariaDB == nil {
		s.Record(ServerCPU, microseconds(s.serverCPU()-s.before.serverCPU)/float64(messages))
	}
	if !s.Elsewhere {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		s.Record(Allocs, float64(memory.Mallocs-s.before.allocs)/float64(messages))
		s.Record(ClientCPU, microseconds(ownCPU()-s.before.clientCPU)/float64(messages))
	}
	return s.profile.stop()
}

// ownCPU is the processor time that this process has taken.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Taken is what a server did since [Stage.Start].
type Taken struct {
	Statements, Log int64 // Log in bytes
	CPU             time.Duration
}

// Taken returns what the server of the contender did until now.
func (s *Stage) Taken(ctx context.Context) (Taken, error) {
	now, err := s.read(ctx)
	return Taken{
		Statements: now.statements - s.before.statements, Log: now.wal - s.before.wal, CPU: now.serverCPU - s.before.serverCPU,
	}, err
}

// Record notes a value that the contender has measured by itself.
func (s *Stage) Record(metric Metric, value float64) {
	if s.sample.Values == nil {
		s.sample.Values = map[Metric]float64{}
	}
	s.sample.Values[metric] = value
}

// read reads all counters. That of the transactions lags behind, until connections end.
func (s *Stage) read(ctx context.Context) (counters, error) {
	if s.mariaDB != nil {
		return s.readMariaDB(ctx)
	}
	now := counters{statements: s.Wire.statements.Load(), roundTrips: s.Wire.roundTrips.Load()}
	const wal = `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`
	if err := s.admin.QueryRowContext(ctx, wal).Scan(&now.wal); err != nil {
		return now, fmt.Errorf("read the position of the WAL: %w", err)
	}
	const commits = `SELECT xact_commit FROM pg_stat_database WHERE datname = $1` // those that only read too
	if err := s.admin.QueryRowContext(ctx, commits, database).Scan(&now.commits); err != nil {
		return now, fmt.Errorf("count transactions: %w", err)
	}
	now.serverCPU = s.serverCPU()
	now.readOwn()
	return now, nil
}

// readOwn reads the counters of this process.
func (c *counters) readOwn() {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	c.allocs, c.clientCPU = memory.Mallocs, ownCPU()
}

// finish closes the contender's handle and counts what it did; connections report their
// transactions when they end.
func (s *Stage) finish(ctx context.Context) error {
	if err := s.DB.Close(); err != nil {
		return err
	}
	if s.mariaDB != nil {
		return nil // it is counted already
	}
	if err := s.waitGone(ctx, ""); err != nil {
		return err
	}
	after, err := s.read(ctx)
	if err != nil || s.sample.Messages == 0 {
		return err
	}
	n := float64(s.sample.Messages)
	if !s.Elsewhere {
		s.Record(Statements, float64(after.statements-s.before.statements)/n)
		s.Record(RoundTrips, float64(after.roundTrips-s.before.roundTrips)/n)
	}
	s.Record(Commits, float64(after.commits-s.before.commits)/n)
	s.Record(WAL, float64(after.wal-s.before.wal)/n)
	return nil
}

// goneTimeout is what a server process may need to notice that its client has gone.
const goneTimeout = 30 * time.Second

// waitGone waits until no client with this name is connected to the contenders' database. An empty
// name stands for all clients.
func (s *Stage) waitGone(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, goneTimeout)
	defer cancel()
	const clients = `
SELECT count(*) FROM pg_stat_activity
WHERE datname = $1 AND backend_type = 'client backend' AND ($2 = '' OR application_name = $2)`
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := s.admin.QueryRowContext(ctx, clients, database, name).Scan(&n); err != nil {
			return fmt.Errorf("wait until connections have ended: %w", err)
		}
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections stay open", n)
		case <-tick.C:
		}
	}
}

// setupName is how the handle for what is not measured calls itself.
const setupName = "setup"

// address returns that of a schema of the contenders' database, for a client of that name.
func address(server, schema, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + database
	query := u.Query()
	if schema != "" {
		query.Set("search_path", schema)
	}
	if name != "" {
		query.Set("application_name", name)
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}
