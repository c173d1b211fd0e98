// Command alone is a forwarder and nothing else, for measurements of a process of its own. Without
// the libraries of the other contenders it is as large as the program of a user.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/lib/pq" // driver "postgres"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alone:", err)
		os.Exit(1)
	}
}

// run works until its input ends. The arguments are the address of the database, how long the
// publisher takes, and the concurrency. Each tick it writes how many messages it has published so
// far, and at the end its largest resident memory.
func run(ctx context.Context, args []string, input io.Reader, output io.Writer) error {
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
	to := &counter{takes: takes}
	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL}
	fwd, err := forwarder.New(database, to, forwarder.Config{Concurrency: concurrency}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	report(input, output, to)
	if err := errors.Join(fwd.Close(), <-ended); err != nil {
		return err
	}
	memory, err := largestMemory()
	fmt.Fprintln(output, memory)
	return err
}

// tick is how often the program tells how far it is.
const tick = 20 * time.Millisecond

// report writes how many messages were published, until the input ends.
func report(input io.Reader, output io.Writer, to *counter) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		_, _ = io.Copy(io.Discard, input)
	}()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintln(output, to.got.Load())
		case <-told:
			return
		}
	}
}

// counter is a publisher that takes a while for each call, or none.
type counter struct {
	takes time.Duration
	got   atomic.Int64
}

// Publish takes its time and counts.
func (c *counter) Publish(_ string, messages ...*message.Message) error {
	if c.takes > 0 {
		<-time.After(c.takes)
	}
	c.got.Add(int64(len(messages)))
	return nil
}

// Close does nothing.
func (c *counter) Close() error { return nil }

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
