package clusters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/prove"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// ProcessArgument makes this program a process of [prove.Run], see [Process].
const ProcessArgument = "process"

// Process is a process of a run on Galera.
func Process(ctx context.Context) error {
	open := func(_ postbox.Dialect, dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }
	return prove.Process(ctx, open, os.Stdin, os.Stdout)
}

// inserts is the setting without which MariaDB commits half of a transaction on Galera.
const inserts = "?interpolateParams=true"

// galera is a cluster of three nodes that all take writes, and the two addresses of its clients.
type galera struct {
	*testcluster.Galera

	out   io.Writer
	first *testcluster.Relay // of most processes
	other *testcluster.Relay // of one process of each kind
	kills int
}

// runGalera lets postbox prove work on two nodes at once, with processes on both, and kills one
// node after the other.
func runGalera(ctx context.Context, config Config) (err error) {
	g := &galera{out: config.Out}
	if g.Galera, err = testcluster.StartGalera(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	for _, relay := range []**testcluster.Relay{&g.first, &g.other} {
		if *relay, err = testcluster.NewRelay(); err != nil {
			return err
		}
		defer (*relay).Close()
	}
	g.lead(0)
	if err := g.refusal(ctx); err != nil {
		return err
	}
	breaking, stop := context.WithTimeout(ctx, config.Duration)
	defer stop()
	broken := make(chan error, 1)
	go func() { broken <- g.breakNodes(ctx, breaking) }()
	report, err := prove.Run(ctx, g.options(config.Duration, inserts))
	stop()
	if err := errors.Join(err, <-broken); err != nil {
		return err
	}
	fmt.Fprintf(config.Out, "galera: %s\n", report.Server.Version)
	for _, line := range append(report.Tried, report.Examples...) {
		fmt.Fprintf(config.Out, "galera: %s\n", line)
	}
	fmt.Fprintf(config.Out, "RESULT database=galera kills=%d written=%d applied=%d lost=%d applied_twice=%d order_violations=%d never_committed=%d process_kills=%d caught_up=%t\n",
		g.kills, report.Intents, report.Applied, report.Lost, report.AppliedTwice, report.OrderViolations, report.NeverCommitted, report.Kills, report.CaughtUp)
	if !report.Kept {
		return errors.New("a promise was broken")
	}
	return nil
}

func (g *galera) options(duration time.Duration, settings string) prove.Options {
	address := func(relay *testcluster.Relay) string {
		return testcluster.MariaDSN(relay.Address(), "postbox") + settings
	}
	return prove.Options{
		Open: func(dsn string) (*sql.DB, error) { return sql.Open("mysql", dsn) }, Dialect: postbox.MySQL,
		DSN: address(g.first), PoolerDSN: address(g.other), Duration: duration, Patience: catchUp,
		Say: func(text string) { fmt.Fprintln(g.out, "galera: "+text) },
		Program: func() (*exec.Cmd, error) {
			program, err := os.Executable()
			return exec.Command(program, ProcessArgument), err //nolint:gosec,noctx // this program; prove ends it
		},
	}
}

// refusal requires that nothing begins with prepared statements.
func (g *galera) refusal(ctx context.Context) error {
	_, err := prove.Run(ctx, g.options(time.Second, ""))
	if err == nil || !strings.Contains(err.Error(), "interpolateParams=true") {
		return fmt.Errorf("prepared statements were not refused: %w", err)
	}
	fmt.Fprintf(g.out, "galera: with prepared statements: %s\n", err)
	return nil
}

// lead leads clients to a node and to the next one.
func (g *galera) lead(n int) {
	g.first.Move(g.Address(n % testcluster.Nodes))
	g.other.Move(g.Address((n + 1) % testcluster.Nodes))
}

// breakNodes kills the node that most clients are connected to, leads them to the others, and lets
// it come back, again and again until breaking ends.
func (g *galera) breakNodes(ctx, breaking context.Context) error {
	for pause(breaking, healthy) == nil {
		dead := g.kills % testcluster.Nodes
		g.kills++
		if err := g.Kill(dead); err != nil {
			return err
		}
		g.lead(g.kills)
		if err := pause(ctx, away); err != nil {
			return err
		}
		began := time.Now()
		if err := g.Start(ctx, dead); err != nil {
			return err
		}
		fmt.Fprintf(g.out, "galera: node %d was dead for %s, and has all data again %s after its start\n",
			dead+1, away, time.Since(began).Round(100*time.Millisecond))
	}
	return ctx.Err()
}
