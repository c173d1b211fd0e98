package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// program is the forwarder that is nothing else, which runs in processes of its own.
const program = "github.com/postbox-go/watermill-postbox/benchmarks/alone"

// buildChild builds the program. remove deletes it.
func buildChild(ctx context.Context) (path string, remove func() error, err error) {
	folder, err := os.MkdirTemp("", "postbox-bench-alone-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(folder) }
	path = filepath.Join(folder, "alone")
	if output, err := exec.CommandContext(ctx, "go", "build", "-o", path, program).CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("build %s, which works in the folder of the benchmarks: %w\n%s", program, err, output), remove())
	}
	return path, remove, nil
}

// child is a forwarder in another process.
type child struct {
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
	last  int64 // what it wrote last
}

// startChild starts the program that was built.
func startChild(ctx context.Context, path, dsn string, takes time.Duration, concurrency int) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, path, dsn, takes.String(), strconv.Itoa(concurrency))}
	c.cmd.Stderr = os.Stderr
	var err error
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
