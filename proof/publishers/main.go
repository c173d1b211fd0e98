// Command publishers tries the outbox with Watermill's stock publishers while their broker is
// stopped and started: with one message waiting, with three and with 300. No message may die of the
// outage, and each must be published in the order of its key. It is started by make publishers; see
// docs/dev/proof.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "publishers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "names of publishers, separated by commas; default: all")
	waiting := flag.String("waiting", "1,3,300", "how many messages wait during the outage: a trial for each number")
	outage := flag.Duration("outage", 15*time.Second, "how long the broker is away at least")
	verbose := flag.Bool("v", false, "log what the forwarder and the publishers log")
	flag.Parse()
	numbers, err := parseNumbers(*waiting)
	if err != nil {
		return fmt.Errorf("-waiting: %w", err)
	}
	chosen, err := choose(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	failed := 0
	for _, candidate := range chosen {
		bad, err := try(ctx, candidate, numbers, options{outage: *outage, verbose: *verbose})
		if err != nil {
			return fmt.Errorf("%s: %w", candidate.name, err)
		}
		failed += bad
	}
	fmt.Fprintf(os.Stdout, "RESULT publishers=%d trials=%d failed=%d\n", len(chosen), len(chosen)*len(numbers), failed)
	if failed > 0 {
		return errors.New("a trial has failed")
	}
	return nil
}

func parseNumbers(list string) ([]int, error) {
	var numbers []int
	for word := range strings.SplitSeq(list, ",") {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		if number < 1 {
			return nil, fmt.Errorf("%d is not positive", number)
		}
		numbers = append(numbers, number)
	}
	return numbers, nil
}

// choose returns the candidates of these names.
func choose(list string) ([]candidate, error) {
	all := candidates()
	if list == "" {
		return all, nil
	}
	var chosen []candidate
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(all, func(c candidate) bool { return c.name == name })
		if at < 0 {
			return nil, fmt.Errorf("no publisher is called %q", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// try runs the trials of one candidate, and returns how many failed.
func try(ctx context.Context, c candidate, numbers []int, o options) (failed int, err error) {
	server, err := c.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	for _, waiting := range numbers {
		result, err := runTrial(ctx, server, waiting, o)
		if err != nil {
			return failed, fmt.Errorf("%d waiting: %w", waiting, err)
		}
		fmt.Fprintf(os.Stdout, "PUBLISHER %s waiting=%d %s\n", c.name, waiting, result)
		for _, line := range result.errors {
			fmt.Fprintln(os.Stdout, "  "+line)
		}
		if result.bad() {
			failed++
		}
	}
	return failed, nil
}
