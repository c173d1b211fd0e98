package driver

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/proof/torture/skew"
)

const (
	// respite is how long a process that ended stays down.
	respite = 300 * time.Millisecond
	// stopDeadline is how long a clean stop may take: handlers have 30 s, in the forwarder and in
	// the stores.
	stopDeadline = 45 * time.Second
	// stopping is how long a process may take until all its threads are stopped.
	stopping = 50 * time.Millisecond
)

// process is started again whenever it ends, until it is retired.
type process struct {
	run    *run
	config role.Config // but for the incarnation in the name
	name   string

	asleep sync.Mutex // held while the process is stopped

	mu          sync.Mutex
	incarnation int
	command     *exec.Cmd
	ended       chan struct{} // of this incarnation
	expected    bool          // this incarnation was told to end
	retired     bool
	skew        time.Duration
	pool        int // connections, where they are not those of the config

	over chan struct{} // closed when it ended for good
}

// start starts an incarnation and a goroutine that waits for its end, unless the process was
// retired while it was down.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		close(p.over)
		return nil
	}
	p.incarnation++
	config := p.config
	config.Name = p.name + "/" + strconv.Itoa(p.incarnation)
	if p.pool > 0 {
		config.Pool = p.pool
	}
	environ, err := config.Environ()
	if err != nil {
		return err
	}
	log, err := os.Create(p.log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()    // the process has it
	command := exec.Command(p.run.binary) //nolint:gosec,noctx // this program, which faults end
	if err := p.still().Create(); err != nil {
		return err
	}
	environ = append(environ, fmt.Sprintf("%s=%d", skew.Variable, int(p.skew.Seconds())), skew.StillVariable+"="+string(p.still()))
	command.Env = environ
	command.Stdout, command.Stderr = log, log
	// The process ends when the driver does, however that may be.
	leash, err := command.StdinPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	p.command, p.ended, p.expected = command, make(chan struct{}), false
	go p.watch(command, leash, p.ended)
	return nil
}

// log is the file of what the current incarnation says.
func (p *process) log() string {
	return filepath.Join(p.run.logs, fmt.Sprintf("%s.%d.log", p.name, p.incarnation))
}

func (p *process) watch(command *exec.Cmd, leash io.Closer, ended chan struct{}) {
	err := command.Wait()
	_ = leash.Close()
	p.mu.Lock()
	expected, log := p.expected, p.log()
	p.mu.Unlock()
	close(ended)
	if !expected {
		p.run.unexpected(p.name, err, log)
	}
	<-time.After(respite)
	if err := p.start(); err != nil {
		p.run.fail(fmt.Errorf("start %s again: %w", p.name, err))
	}
}

// signal sends a signal to the current incarnation; one that ends it is expected to do so.
func (p *process) signal(s syscall.Signal) (pid int, ended chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == syscall.SIGKILL || s == syscall.SIGTERM {
		p.expected = true
	}
	_ = p.command.Process.Signal(s) // it may have ended by itself
	return p.command.Process.Pid, p.ended
}

// suspend stops the current incarnation while the function runs, and lets its monotonic clock stand
// still meanwhile.
func (p *process) suspend(during func()) error {
	p.asleep.Lock()
	defer p.asleep.Unlock()
	p.mu.Lock()
	pid, still := p.command.Process.Pid, p.still()
	_ = p.command.Process.Signal(syscall.SIGSTOP) // it may have ended by itself
	p.mu.Unlock()
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // it may have been killed
	<-time.After(stopping)
	from := time.Now()
	during()
	return still.Add(time.Since(from))
}

// still is the file by which the monotonic clock of the current incarnation stands still.
func (p *process) still() skew.Still {
	return skew.Still(filepath.Join(p.run.folder, fmt.Sprintf("%s.%d.still", p.name, p.incarnation)))
}

// pause stops the current incarnation while the function runs.
func (p *process) pause(during func()) {
	p.asleep.Lock()
	defer p.asleep.Unlock()
	pid, _ := p.signal(syscall.SIGSTOP)
	during()
	_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
}

// end ends the current incarnation, cleanly.
func (p *process) end() error {
	_, ended := p.signal(syscall.SIGTERM)
	timer := time.NewTimer(stopDeadline)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		p.signal(syscall.SIGQUIT) // the log gets all stacks
		p.signal(syscall.SIGKILL)
		return fmt.Errorf("%s has not stopped cleanly %s after SIGTERM: see %s", p.name, stopDeadline, p.log())
	}
}

// retire ends the process for good.
func (p *process) retire() error {
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()
	err := p.end()
	<-p.over
	return err
}

// change lets the next incarnations have another clock and pool.
func (p *process) change(clock time.Duration, pool int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew, p.pool = clock, pool
}

func (p *process) changes() (clock time.Duration, pool int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.skew, p.pool
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command.Process.Pid
}

// tail returns the end of a log.
func tail(file string) string {
	const size = 3000
	text, err := os.ReadFile(file) //nolint:gosec // a file of this run
	if err != nil {
		return err.Error()
	}
	if i := bytes.Index(text, []byte("panic: ")); i >= 0 {
		text = text[i:]
		return string(text[:min(len(text), size)])
	}
	return string(text[max(0, len(text)-size):])
}
