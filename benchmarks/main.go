// Command benchmarks measures Postbox side by side with what a user would pick instead, and with
// the same done by hand, on a PostgreSQL of its own. See docs/dev/performance.md, and
// docs/dev/scaling.md for the curves.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/benchmarks/report"
	"github.com/postbox-go/watermill-postbox/benchmarks/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// bench does what the flags say.
func bench(ctx context.Context) error {
	var options measure.Options
	name := flag.String("set", "peers", "what to measure: peers, beside others; curves, by what is given")
	only := flag.String("only", "", "names of targets or groups, separated by commas; default: all")
	flag.IntVar(&options.Rounds, "rounds", 0, "rounds in which each contender has one turn (default 5, curves 3, quick 1)")
	flag.BoolVar(&options.Quick, "quick", false, "fewer rounds of fewer messages, for a first impression")
	flag.StringVar(&options.CPUProfiles, "cpuprofile", "", "existing folder for a CPU profile of each run")
	flag.StringVar(&options.MemoryProfiles, "memprofile", "", "existing folder for allocation profiles, one before and one after each run")
	results := flag.String("results", "", "file for the results, as JSON")
	docs := flag.String("docs", "", "folder of performance.md and scaling.md; that of the set gets the tables and pictures of this run")
	flag.Parse()
	which, known := sets()[*name]
	if !known {
		return fmt.Errorf("-set %s: choose peers or curves", *name)
	}
	if options.Rounds == 0 {
		options.Rounds = which.rounds
		if options.Quick {
			options.Rounds = quickRounds
		}
	}
	summary, err := run(ctx, options, which, names(*only))
	if err != nil {
		return err
	}
	if *results != "" {
		err = summary.Save(*results)
	}
	if *docs != "" {
		err = errors.Join(err, summary.WriteDocs(*docs, which.page))
	}
	return err
}

func names(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// run starts servers, measures, and prints what it finds as it finds it.
func run(ctx context.Context, options measure.Options, which set, only []string) (summary *report.Summary, err error) {
	chosen, err := which.choose(only)
	if err != nil {
		return nil, err
	}
	options.Progress = report.Progress(os.Stderr)
	running := &servers{options: options}
	defer func() { err = errors.Join(err, running.stop()) }()
	summary = report.New(options, server.Settings())
	for _, scenario := range chosen {
		if scenario.Needs != "" && os.Getenv(scenario.Needs) == "" {
			fmt.Fprintf(os.Stdout, "\n%s: left out, it needs %s, which make bench sets\n", scenario.Name, scenario.Needs)
			continue
		}
		at, err := running.serverFor(ctx, scenario)
		if err != nil {
			return nil, err
		}
		series, err := scenario.Rounds(ctx, at)
		if err != nil {
			return nil, err
		}
		summary.Add(scenario, series)
		if err := summary.Print(os.Stdout, scenario.Name); err != nil {
			return nil, err
		}
	}
	return summary, nil
}

// choose returns the scenarios with the targets or groups of these names.
func (s set) choose(only []string) ([]measure.Scenario, error) {
	var chosen []measure.Scenario
	for _, scenario := range s.scenarios {
		if restricted, ok := scenario.Restrict(only); ok {
			chosen = append(chosen, restricted)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("nothing is called %s", strings.Join(only, " or "))
	}
	return chosen, nil
}
