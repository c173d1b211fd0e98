// Torture runs services that use Postbox as several processes on real servers, breaks everything
// that can break while they work, and then judges what is left. It is started by make torture:
//
//	make torture DURATION=3m SEED=1 FAULTS=kill,pause
//
// package schedule says what is broken and when, package role what the processes do, package ledger
// where the truth stands, package driver does the breaking, and package checker the judging.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "github.com/lib/pq"              // driver "postgres"

	"github.com/postbox-go/watermill-postbox/proof/torture/driver"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
)

func main() {
	if config := os.Getenv(role.Variable); config != "" {
		exit(role.Run(config))
	}
	config := driver.Config{Out: os.Stdout}
	var kinds string
	flag.DurationVar(&config.Duration, "duration", 3*time.Minute, "how long things go wrong")
	flag.Uint64Var(&config.Seed, "seed", uint64(time.Now().UnixNano()%1e9), "what goes wrong, and when, follows from it")
	flag.StringVar(&kinds, "faults", "", fmt.Sprintf("kinds of faults, with commas between them: %v (default all)", schedule.Kinds()))
	flag.Float64Var(&config.Rate, "rate", 25, "transactions a second of all producers together; three to four messages follow from each")
	flag.DurationVar(&config.Distance, "distance", 0, "how long each answer of the database is on its way")
	flag.DurationVar(&config.CatchUp, "catch-up", 90*time.Second, "how long it may take until everything is through after the last fault")
	flag.BoolVar(&config.Keep, "keep", false, "keep the folder with the histories and the logs, also when all is well")
	flag.Parse()
	var err error
	if config.Kinds, err = schedule.Parse(kinds); err != nil {
		exit(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = driver.Run(ctx, config)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
