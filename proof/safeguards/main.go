// Command safeguards shows that the tests would notice: it takes one safeguard out of Postbox at a
// time, in a build for tests that go's -overlay makes of the changed sources, runs the tests that
// stand for the guarantee, and wants them to fail. The sources themselves hold no switch. Start it
// with `make safeguards`.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	only := flag.String("only", "", "the safeguards whose names contain this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signals with it
	}
}

// atATime is how many safeguards are tried at the same time: a test that misses one mostly waits
// until its patience ends.
const atATime = 3

// run tries each safeguard and prints a line for each, and a summary as the last one.
func run(ctx context.Context, out io.Writer, only string) error {
	var mu sync.Mutex // for out and the numbers
	tried, caught := 0, 0
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, s := range safeguards {
		if !strings.Contains(s.name, only) {
			continue
		}
		tried++
		group.Go(func() error {
			started := time.Now()
			failed, err := s.try(ctx)
			verdict := "NOT CAUGHT"
			switch {
			case err != nil:
				verdict = "NOT TRIED: " + err.Error()
			case len(failed) > 0:
				verdict = "caught by " + strings.Join(failed, ", ")
			}
			mu.Lock()
			defer mu.Unlock()
			if len(failed) > 0 {
				caught++
			}
			_, err = fmt.Fprintf(out, "without %-32s (%s) %4.0f s  %s\n", s.name, s.guarantees, time.Since(started).Seconds(), verdict)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "RESULT safeguards=%d caught=%d\n", tried, caught)
	if tried == 0 || caught < tried {
		return fmt.Errorf("%d of %d safeguards can be taken out without a test that fails", tried-caught, tried)
	}
	return nil
}
