package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// The roles of processes.
const (
	producers  = "producer"
	forwarders = "forwarder"
	inboxes    = "inbox"
	queues     = "queue"
	batches    = "batch"
)

// cast says which processes there are, how many connections each has, and how many of them use a
// pooler if there is one.
var cast = []struct {
	role                    string
	number, pool, throughIt int
}{
	{producers, 2, 4, 1},
	{forwarders, 3, 2, 1},
	{inboxes, 2, 4, 1},
	{queues, 2, 4, 1},
	{batches, 1, 2, 0},
}

const (
	// parentPool is how many connections the process has that watches and judges.
	parentPool = 4
	// lease of all processes: so short that many are lost in a run.
	lease = 2 * time.Second
	// stopPatience is how long a process may take to end when it is told to.
	stopPatience = 30 * time.Second
	// mostProcesses is more than there are.
	mostProcesses = 100
	// restartPause is between the end of a process by itself and its next start.
	restartPause = 500 * time.Millisecond
)

// connections is how many a run has. Sessions of killed processes may live for a moment.
func connections() int {
	n := 2 * parentPool
	for _, c := range cast {
		n += c.number * c.pool
	}
	return n
}

// run is a run of the torture.
type run struct {
	Options

	place  *place
	server server
	broker *broker
	dice   *rand.Rand

	context   context.Context //nolint:containedctx // ends with the run
	processes []*process
	failing   sync.Mutex  // held while the broker fails
	ways      int         // in which the broker has failed
	starter   chan func() // runs on a thread that lives as long as the run

	mu       sync.Mutex
	counts   map[string]int // of what happened, by the names in report.go
	unfit    time.Time      // since when processes end by themselves and none has worked
	lastFail string
}

func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *run) counted(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

// hopeless: no process has been able to work for too long.
func (r *run) hopeless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.unfit.IsZero() && time.Since(r.unfit) > r.Patience/2
}

// failed is the error of processes that cannot work at all.
func (r *run) failed() error {
	if !r.hopeless() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Errorf("the processes of the run end by themselves: %s", r.lastFail)
}

// config is what a process is told on its standard input. The address may have a password, which
// others could see among the arguments.
type config struct {
	Role    string          `json:"role"`
	Name    string          `json:"name"`
	Seed    uint64          `json:"seed"`
	Dialect postbox.Dialect `json:"dialect"`
	DSN     string          `json:"dsn"`
	Pooled  bool            `json:"pooled"`
	Pool    int             `json:"pool"`
	Schema  string          `json:"schema"`
	Prefix  string          `json:"prefix"`
	Broker  string          `json:"broker"`
	Secret  string          `json:"secret"`
	// Hold is how long the longest transaction is held open.
	Hold time.Duration `json:"hold"`
}

// stopLine tells a process to end, and calmLine that faults which take time are not wanted any
// more. It ends at once when its standard input does.
const (
	stopLine = "stop\n"
	calmLine = "calm\n"
)

// process is one of the run, started again and again.
type process struct {
	run    *run
	config config
	number uint64 // of starts
	index  uint64 // among all processes, so that no two throw the same dice

	busy  sync.Mutex // held by the fault that happens to it
	mu    sync.Mutex
	cmd   *exec.Cmd // nil while it does not run
	stdin io.WriteCloser
	ended chan struct{} // closed when cmd has
	stops bool          // its end is wanted

	complaints tail // on its standard error
}

// start starts all processes. The function that it returns kills those that still run.
func (r *run) start(ctx context.Context) (endAll func()) {
	r.context = ctx
	r.starter = make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: the processes end with the thread
		for do := range r.starter {
			do()
		}
	}()
	for _, c := range cast {
		for n := range c.number {
			dsn, pooled := r.place.dsn, r.server.pooled
			if r.PoolerDSN != "" && n >= c.number-c.throughIt {
				dsn, pooled = r.PoolerDSN, true
			}
			pool, hold := c.pool, min(4*time.Second, r.Duration/4)
			if r.place.dialect == postbox.SQLite {
				pool, hold = 1, hold/20
			}
			p := &process{run: r, index: uint64(len(r.processes)), config: config{
				Role: c.role, Name: fmt.Sprintf("%s-%d", c.role, n+1), Dialect: r.place.dialect, DSN: dsn, Pooled: pooled, Pool: pool,
				Schema: r.place.schema, Prefix: r.place.prefix, Broker: r.broker.listener.Addr().String(), Secret: r.broker.secret, Hold: hold,
			}}
			r.processes = append(r.processes, p)
			p.start() //nolint:contextcheck // it lives as long as the run
		}
	}
	return func() {
		for _, p := range r.processes {
			p.kill()
		}
		close(r.starter)
	}
}

// start starts a process that does not run, and again whenever it ends by itself, until the run
// ends.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun()
}

// startAgain starts a process that has ended by itself, unless it was told to end or was started
// meanwhile.
func (p *process) startAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stops {
		p.begun()
	}
}

func (p *process) begun() {
	ctx := p.run.context
	if ctx.Err() != nil || p.cmd != nil {
		return
	}
	p.number++
	p.config.Seed = p.run.Seed + p.number*mostProcesses + p.index
	p.stops = false
	p.ended = make(chan struct{})
	output, err := p.begin()
	if err != nil {
		p.run.ended(err.Error())
		close(p.ended)
		go func() {
			if wait(ctx, restartPause) && !p.run.hopeless() {
				p.startAgain() //nolint:contextcheck // it lives as long as the run
			}
		}()
		return
	}
	cmd, ended := p.cmd, p.ended
	go func() {
		last := p.run.read(output)
		_ = cmd.Wait() // how it ended is of no interest
		p.mu.Lock()
		p.cmd = nil
		byItself := !p.stops
		if last == "" { // such as a crash
			last = p.complaints.String()
		}
		p.mu.Unlock()
		close(ended)
		if byItself && ctx.Err() == nil {
			p.run.ended(p.config.Name + ": " + last)
			if wait(ctx, restartPause) && !p.run.hopeless() {
				p.startAgain() //nolint:contextcheck // it lives as long as the run
			}
		}
	}()
}

func (p *process) begin() (io.Reader, error) {
	cmd, err := p.run.Program()
	if err != nil {
		return nil, err
	}
	endWithParent(cmd)
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.complaints.Reset()
	if cmd.Stderr == nil {
		cmd.Stderr = &p.complaints
	}
	started := make(chan error)
	p.run.starter <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	if err := json.NewEncoder(p.stdin).Encode(p.config); err != nil { //nolint:gosec // the process needs the secret
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	p.cmd = cmd
	return output, nil
}

// read counts what a process says that it did, and returns the last error that it says.
func (r *run) read(output io.Reader) (last string) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if text, isError := strings.CutPrefix(lines.Text(), errorLine); isError {
			last = text
			continue
		}
		r.mu.Lock()
		r.counts[lines.Text()]++
		r.unfit = time.Time{}
		r.mu.Unlock()
	}
	return last
}

// ended notes that a process ended by itself.
func (r *run) ended(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unfit.IsZero() {
		r.unfit = time.Now()
	}
	r.counts[endings]++
	r.lastFail = why
}

// tail keeps the beginning and the end of what is written, without the middle.
type tail struct{ first, last []byte }

// mostComplaints is how much is kept of each.
const mostComplaints = 1000

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	n := min(len(text), mostComplaints-len(t.first))
	t.first = append(t.first, text[:n]...)
	t.last = append(t.last, text[n:]...)
	t.last = t.last[max(0, len(t.last)-mostComplaints):]
	return len(text), nil
}

// Reset forgets all.
func (t *tail) Reset() { *t = tail{} }

// String returns what is kept.
func (t *tail) String() string { return string(t.first) + string(t.last) }

// kill ends a process as kill -9 does.
func (p *process) kill() {
	p.mu.Lock()
	p.stops = true
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-ended
}

// stop tells a process to end, and kills one that does not.
func (p *process) stop() {
	p.mu.Lock()
	p.stops = true
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_, _ = io.WriteString(p.stdin, stopLine) // it may have ended
	select {
	case <-ended:
	case <-time.After(stopPatience):
		p.run.count(stuck)
		p.kill()
	}
}

// calm lets processes catch up: they cut no connections, and handlers are quick.
func (r *run) calm() {
	for _, p := range r.processes {
		p.mu.Lock()
		if p.cmd != nil {
			_, _ = io.WriteString(p.stdin, calmLine) // it may have ended
		}
		p.mu.Unlock()
	}
}

// end stops the processes of a role, or all.
func (r *run) end(role string) {
	var ending sync.WaitGroup
	for _, p := range r.processes {
		if role == "" || p.config.Role == role {
			ending.Go(p.stop)
		}
	}
	ending.Wait()
}

// progress is how far a run has got.
type progress struct{ intents, effects int }

func (r *run) progress(ctx context.Context) (now progress, err error) {
	err = r.place.db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM "+r.place.table("intents")+"), (SELECT COUNT(*) FROM "+r.place.table("effects")+")").
		Scan(&now.intents, &now.effects)
	return now, err
}

const (
	reportPause = 3 * time.Second
	lookPause   = 100 * time.Millisecond
)

// reportProgress says every few seconds how far the run has got, until the function that it returns
// is called.
func (r *run) reportProgress(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	begin := time.Now()
	reporting.Go(func() {
		for wait(ctx, reportPause) {
			now, err := r.progress(ctx)
			if err != nil {
				continue
			}
			r.Say(fmt.Sprintf("%3.0fs: %d messages committed, %d of %d effects, %d processes killed, %d connections cut, %d broker failures",
				time.Since(begin).Seconds(), now.intents, now.effects, len(groupNames)*now.intents, r.counted(killed), r.counted(cut), r.brokerFailures()))
		}
	})
	return func() {
		cancel()
		reporting.Wait()
	}
}

// begin waits for the first message: on a busy machine processes need a while to start.
func (r *run) begin(ctx context.Context) error {
	for since := time.Now(); time.Since(since) < r.Patience && !r.hopeless(); {
		if now, err := r.progress(ctx); err == nil && now.intents > 0 || !wait(ctx, lookPause) {
			break
		}
	}
	return errors.Join(r.failed(), ctx.Err())
}

// catchUp waits until all messages are done, and returns false if none was done for too long.
func (r *run) catchUp(ctx context.Context) (bool, error) {
	operator, err := admin.New(r.place.database(), admin.Config{}, nil)
	if err != nil {
		return false, err
	}
	var last int
	for since := time.Now(); wait(ctx, lookPause); {
		if r.hopeless() {
			return false, nil
		}
		left, err := r.left(ctx, operator)
		if err == nil && left == 0 {
			return true, nil
		}
		if err == nil && left != last {
			last, since = left, time.Now()
		}
		if time.Since(since) > r.Patience {
			return false, nil
		}
	}
	return false, nil
}

// left is how much is under way: effects, and messages in the broker, the outbox and the queues.
func (r *run) left(ctx context.Context, operator *admin.Admin) (int, error) {
	lost := 0
	for _, consumer := range groupNames {
		n, err := r.number(ctx, r.lost(consumer))
		if err != nil {
			return 0, err
		}
		lost += n
	}
	all, err := operator.Queues(ctx)
	if err != nil {
		return 0, err
	}
	for _, q := range all {
		lost += q.Pending
	}
	return lost + r.broker.left(), nil
}
