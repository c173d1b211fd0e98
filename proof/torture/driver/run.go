// Package driver runs the processes of a torture run, breaks what the schedule says, and lets the
// checker judge.
package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/proof/torture/checker"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

// Config is what a run is told.
type Config struct {
	Duration time.Duration
	Seed     uint64
	Kinds    []schedule.Kind
	// Rate is the number of transactions a second of all producers together.
	Rate float64
	// Distance is how long each answer of the database is on its way.
	Distance time.Duration
	// CatchUp is how long it may take until everything is through after the last fault.
	CatchUp time.Duration
	// Keep the folder of the run, also when all is well.
	Keep bool
	Out  io.Writer
}

// run is a run.
type run struct {
	Config

	folder, logs string
	binary       string // of the processes
	database     string // DSN of the driver's connections
	databaseName string
	cluster      *testcluster.Postgres // nil where the database is one of the services
	db           *sql.DB
	direct       role.Config // what reaches everything without a wire
	history      *history.Writer
	wires        *wires
	services     *services
	processes    map[string]*process
	begun        time.Time

	faulting sync.WaitGroup
	faults   map[schedule.Kind]int
	// keptSince is since when the outbox keeps what it publishes.
	keptSince time.Time

	mu         sync.Mutex // what follows, and the output
	violations []error
	failovers  []checker.Failover
	troubles   []checker.Trouble
	surprises  int // ends of processes that nobody had told to end
	memory     []checker.Sample
}

// Run is a whole run. Its error says what went wrong that must not.
func Run(ctx context.Context, config Config) (err error) {
	r := &run{
		Config: config, wires: newWires(), services: newServices(everything),
		processes: map[string]*process{}, faults: map[schedule.Kind]int{}, begun: time.Now(),
	}
	r.say("seed %d, %s, faults %v", r.Seed, r.Duration, r.Kinds)
	if r.folder, err = os.MkdirTemp("", "postbox-torture-"); err != nil {
		return err
	}
	defer func() {
		if err != nil || r.Keep {
			r.say("the histories and logs are in %s", r.folder)
			return
		}
		err = os.RemoveAll(r.folder)
	}()
	if err := r.startCluster(ctx); err != nil {
		return err
	}
	if r.cluster != nil {
		defer func() { err = errors.Join(err, r.cluster.Close()) }()
	}
	faults, err := schedule.New(r.Seed, r.Duration, r.Kinds, victims())
	if err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the run: %w", err)
	}
	defer func() { _ = r.db.Close() }()
	defer r.killAll()
	if err := r.startAll(); err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { r.watch(watching) })
	defer watchers.Wait()
	defer stopWatching()
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	r.inject(ctx, faults)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	caughtUp, err := r.heal(ctx)
	if err != nil {
		return err
	}
	stopWatching()
	return r.judge(ctx, caughtUp)
}

// everything is the services that there are.
var everything = []string{"postgres", "rabbitmq", "kafka"}

// roles are which processes there are, how many connections each has, and what it speaks to.
var roles = []struct {
	role     role.Role
	number   int
	pool     int
	services []string
}{
	{role.Producer, 2, 5, everything[:1]},
	{role.Forwarder, 2, 5, everything},
	{role.Consumer, 2, 12, everything},
	{role.Worker, 2, 20, []string{"postgres", "kafka"}},
	{role.Operator, 1, 3, everything[:1]},
}

// victims are all processes.
func victims() []schedule.Process {
	var all []schedule.Process
	for _, kind := range roles {
		for n := range kind.number {
			all = append(all, schedule.Process{Name: fmt.Sprintf("%s-%d", kind.role, n+1), Services: kind.services})
		}
	}
	return all
}

func (r *run) startAll() error {
	for _, kind := range roles {
		for n := range kind.number {
			config, err := r.configure(kind.role, n+1)
			if err != nil {
				return err
			}
			config.Pool, config.Rate = kind.pool, r.Rate/float64(kind.number)
			p := &process{run: r, config: config, name: config.Name, over: make(chan struct{})}
			r.processes[p.name] = p
			if err := p.start(); err != nil {
				return fmt.Errorf("start %s: %w", p.name, err)
			}
		}
	}
	return nil
}

// killAll is for a run that fails: what is left of it ends.
func (r *run) killAll() {
	for _, p := range r.processes {
		p.mu.Lock()
		p.retired, p.expected = true, true
		if p.command != nil {
			_ = p.command.Process.Kill()
		}
		p.mu.Unlock()
	}
}

// say prints a line.
func (r *run) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.Out, format+"\n", args...)
}

// violate notes something that must never happen and that the driver itself has seen.
func (r *run) violate(err error) {
	r.say("VIOLATION %s", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, err)
}

// fail is for what would make the run worthless.
func (r *run) fail(err error) { r.violate(fmt.Errorf("the run itself: %w", err)) }

// unexpected tells of a process that ended by itself. A service may do that where Postbox returns
// an error, but a panic is nobody's plan.
func (r *run) unexpected(name string, err error, log string) {
	said := tail(log)
	r.say("          %s ended by itself: %v\n%s", name, err, indent(said))
	r.mu.Lock()
	r.surprises++
	r.mu.Unlock()
	if strings.Contains(said, "panic: ") || strings.Contains(said, "fatal error: ") {
		r.violate(fmt.Errorf("%s panicked: see %s", name, filepath.Base(log)))
	}
}

func indent(text string) string {
	return "            | " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n            | ")
}
