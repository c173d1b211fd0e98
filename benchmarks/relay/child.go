package relay

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	_ "github.com/lib/pq" // driver "postgres"

	"github.com/postbox-go/watermill-postbox/forwarder"
)

// ChildCommand is the word by which this program is told to be a forwarder, for those who measure processes.
const ChildCommand = "forwarder"

// Child runs a forwarder in a process of its own, until its input ends. Arguments are the address of the database, how
// long the publisher takes, and the concurrency. Each tick it writes how many messages it has published so far; at the
// end, its largest resident memory.
func Child(ctx context.Context, args []string, input io.Reader, output io.Writer) error {
	const usage = "arguments: DSN, DURATION, CONCURRENCY"
	if len(args) != strings.Count(usage, ",")+1 {
		return errors.New(usage)
	}
	takes, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	concurrency, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	db, err := sql.Open("postgres", args[0])
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	to := newSink(-1, takes)
	fwd, ended, err := startOurs(ctx, db, to, forwarder.Config{Concurrency: concurrency})
	if err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = io.Copy(io.Discard, input)
	}()
	tick := time.NewTicker(childTick)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-tick.C:
			fmt.Fprintln(output, to.got.Load())
		case <-told:
			running = false
		}
	}
	if err := errors.Join(fwd.Close(), <-ended); err != nil {
		return err
	}
	memory, err := largestMemory()
	fmt.Fprintln(output, memory)
	return err
}

// childTick is how often a child tells how far it is.
const childTick = 20 * time.Millisecond

// largestMemory is the most resident memory that this process ever had, in bytes, as Linux tells.
func largestMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory is read where Linux tells it: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && fields[0] == "VmHWM:" {
			const kilobyte = 1024
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n * kilobyte, err
		}
	}
	return 0, errors.New("/proc/self/status says nothing of VmHWM")
}

// child is a forwarder in another process.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	last  int64 // what it wrote last
}

// startChild starts this program as a forwarder.
func startChild(ctx context.Context, dsn string, takes time.Duration, concurrency int) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, ChildCommand, dsn, takes.String(), strconv.Itoa(concurrency))}
	c.cmd.Stderr = os.Stderr
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(output)
	return c, c.cmd.Start()
}

// next waits for the next number that the child writes.
func (c *child) next() error {
	if !c.lines.Scan() {
		return errors.Join(errors.New("a forwarder ended early"), c.lines.Err(), c.cmd.Wait())
	}
	var err error
	c.last, err = strconv.ParseInt(c.lines.Text(), 10, 64)
	return err
}

// stop ends the child and returns its largest resident memory.
func (c *child) stop() (memory int64, err error) {
	if err := c.input.Close(); err != nil {
		return 0, err
	}
	for c.lines.Scan() {
		if c.last, err = strconv.ParseInt(c.lines.Text(), 10, 64); err != nil {
			return 0, err
		}
	}
	return c.last, errors.Join(c.lines.Err(), c.cmd.Wait())
}
