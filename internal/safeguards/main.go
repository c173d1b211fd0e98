// Command safeguards shows that the tests would notice: it takes one safeguard out of Postbox at a time, in a build for
// tests that go's -overlay makes of the changed sources, runs the tests that stand for the guarantee, and wants them to
// fail. The sources themselves hold no switch. Start it with `make safeguards`.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
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

// run tries each safeguard and prints a line for each, and a summary as the last one.
func run(ctx context.Context, out io.Writer, only string) error {
	tried, caught := 0, 0
	for _, s := range safeguards {
		if !strings.Contains(s.name, only) {
			continue
		}
		tried++
		started := time.Now()
		failed, err := s.try(ctx)
		if err != nil {
			return fmt.Errorf("without %q: %w", s.name, err)
		}
		verdict := "NOT CAUGHT"
		if len(failed) > 0 {
			caught++
			verdict = "caught by " + strings.Join(failed, ", ")
		}
		_, _ = fmt.Fprintf(out, "without %-32s (%s) %4.0f s  %s\n", s.name, s.guarantees, time.Since(started).Seconds(), verdict)
	}
	_, _ = fmt.Fprintf(out, "RESULT safeguards=%d caught=%d\n", tried, caught)
	if tried == 0 || caught < tried {
		return fmt.Errorf("%d of %d safeguards can be taken out without a test that fails", tried-caught, tried)
	}
	return nil
}
