// Command publishers tries the outbox with Watermill's stock publishers while their broker is
// stopped and started: with one message waiting, with three and with 300. No message may die of the
// outage, and each must be published in the order of its key: see docs/dev/proof.md. Then it
// tries whole chains, from outbox to inbox: see docs/brokers.md. It is started by make publishers.
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

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/proof/publishers/chain"
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
	only := flag.String("only", "", "names of publishers and chains, separated by commas; default: all")
	waiting := flag.String("waiting", "1,3,300", "how many messages wait during the outage: a trial for each number")
	outage := flag.Duration("outage", 15*time.Second, "how long the broker is away at least")
	rounds := flag.Int("rounds", 3, "how often a chain meets each fault")
	messages := flag.Int("messages", 600, "how many messages go through a chain around a fault")
	verbose := flag.Bool("v", false, "log what the forwarder and the publishers log")
	flag.Parse()
	numbers, err := parseNumbers(*waiting)
	if err != nil {
		return fmt.Errorf("-waiting: %w", err)
	}
	chosen, chains, err := choose(*only)
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
	failedChains := 0
	for _, broker := range chains {
		bad, err := tryChain(ctx, broker, chain.Config{Rounds: *rounds, Messages: *messages, Logger: logger(*verbose)})
		if err != nil {
			return fmt.Errorf("chain %s: %w", broker.Name, err)
		}
		if bad {
			failedChains++
		}
	}
	fmt.Fprintf(os.Stdout, "RESULT chains=%d failed=%d\n", len(chains), failedChains)
	if failed+failedChains > 0 {
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

// choose returns the candidates and the chains of these names. Some names are those of both.
func choose(list string) (chosen []candidate, chains []chain.Broker, err error) {
	all, allChains := candidates(), chain.Brokers()
	if list == "" {
		return all, allChains, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		publisher := slices.IndexFunc(all, func(c candidate) bool { return c.name == name })
		through := slices.IndexFunc(allChains, func(b chain.Broker) bool { return b.Name == name })
		if publisher < 0 && through < 0 {
			return nil, nil, fmt.Errorf("no publisher and no chain is called %q", name)
		}
		if publisher >= 0 {
			chosen = append(chosen, all[publisher])
		}
		if through >= 0 {
			chains = append(chains, allChains[through])
		}
	}
	return chosen, chains, nil
}

// logger logs if verbose is set.
func logger(verbose bool) watermill.LoggerAdapter {
	if verbose {
		return watermill.NewStdLogger(false, false)
	}
	return watermill.NopLogger{}
}

// tryChain runs the trial of one chain, and says whether it failed.
func tryChain(ctx context.Context, b chain.Broker, config chain.Config) (failed bool, err error) {
	result, err := chain.Run(ctx, b, config)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stdout, "CHAIN %s %s\n", b.Name, result)
	wrong := result.Fault()
	if wrong != nil {
		fmt.Fprintln(os.Stdout, "  "+wrong.Error())
	}
	return wrong != nil, nil
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
