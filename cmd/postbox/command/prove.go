package command

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/prove"
)

// proveVariable makes the command a process of a run of another one, which tells it on its standard
// input what to do.
const proveVariable = "POSTBOX_PROVE_PROCESS"

// leastProof is the shortest run: in a shorter one hardly anything happens.
const leastProof = time.Second

// proveFlags are the flags of the command.
type proveFlags struct {
	duration durationFlag
	pooler   string
	seed     uint64
}

func (p *program) proveCommand() *cobra.Command {
	flags := proveFlags{duration: durationFlag{time.Minute}}
	cmd := &cobra.Command{
		Use: "prove", Short: "Torture Postbox on this server, and count what is lost, doubled or out of order",
		Long: `Torture Postbox on this server, and count what is lost, doubled or out of order.

The command works in a schema of its own, or in tables whose names begin with
postbox_prove_ if the role may create no schema, and on MySQL and MariaDB. For
SQLite it works in a folder beside the file, which it does not open. It removes
all of that at its end, also after an interruption. What a run left that was
killed is removed by the next one, a minute later or more.

It starts producers, forwarders, inboxes and queues in ten processes of this
program, with a broker in memory. While they work it kills, restarts and freezes
processes, ends connections to the database, holds transactions open, and lets
handlers and the broker fail. Other sessions and processes are left alone. Then it
waits until all messages are done, and counts with SQL: each message that was
committed must have one effect in an inbox, in a queue and in a batch, in order
within its key, and no other message may have any.

It refuses a replica, a server that takes no writes, and one with too few free
connections: some forty are needed. docs/prove.md describes a run.

The exit code is 0 if all promises were kept, and 3 otherwise.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv(proveVariable) != "" {
				return prove.Process(cmd.Context(), p.openFor, os.Stdin, os.Stdout)
			}
			return p.prove(cmd, flags)
		},
	}
	cmd.Flags().Var(&flags.duration, "duration", "how long producers write and faults happen")
	cmd.Flags().StringVar(&flags.pooler, "through-pooler", "", "address of the same database through a pooler in transaction mode, for four of the processes")
	cmd.Flags().Uint64Var(&flags.seed, "seed", 0, "number that chooses the faults, 0 for any")
	return cmd
}

func (p *program) openFor(dialect postbox.Dialect, dsn string) (*sql.DB, error) {
	return p.options.Open(OpenParams{Dialect: dialect, DSN: dsn})
}

func (p *program) prove(cmd *cobra.Command, flags proveFlags) error {
	found, err := p.settings.resolve(p.options.LookupEnv)
	if err != nil {
		return err
	}
	if found.address.dsn == "" {
		return usagef("no database is named: set --dsn or the variable %s", dsnVariable)
	}
	if flags.duration.Duration < leastProof {
		return usagef("--duration: at least %s", leastProof)
	}
	options := prove.Options{
		Dialect: found.address.dialect, DSN: found.address.dsn, File: found.address.file, Duration: flags.duration.Duration, Seed: flags.seed,
		Open:    func(dsn string) (*sql.DB, error) { return p.openFor(found.address.dialect, dsn) },
		Address: found.address.beside,
		Program: func() (*exec.Cmd, error) { return proveProcess(cmd) },
		Say:     func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), lines(text)) },
	}
	if flags.seed == 0 {
		options.Seed = rand.Uint64N(1_000_000) //nolint:gosec // any will do
	}
	if flags.pooler != "" {
		if found.address.dialect != postbox.PostgreSQL {
			return usagef("--through-pooler is for PostgreSQL")
		}
		pooler, err := parseAddress(flags.pooler, postbox.PostgreSQL)
		if err != nil {
			return usage(fmt.Errorf("--through-pooler: %w", err))
		}
		options.PoolerDSN = pooler.dsn
		found.address.secrets = append(found.address.secrets, pooler.secrets...)
	}
	report, err := prove.Run(cmd.Context(), options)
	switch {
	case cmd.Context().Err() != nil && !errors.Is(err, prove.ErrLeft):
		return stoppedf("interrupted, and nothing of the run is left")
	case cmd.Context().Err() != nil:
		return stoppedf("interrupted: %s", found.address.hide(err.Error()))
	case err != nil:
		return &explainedError{found.address.hide(err.Error()), err}
	}
	if err := p.printer(cmd).one(report, report.String()); err != nil {
		return err
	}
	if !report.Kept {
		return foundf("not all promises were kept on this server: see docs/prove.md")
	}
	return nil
}

// proveProcess is this command again, without its flags.
func proveProcess(cmd *cobra.Command) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.Command(program, strings.Fields(cmd.CommandPath())[1:]...) //nolint:gosec,noctx // this program; prove ends it
	process.Env = append(os.Environ(), proveVariable+"=1")
	return process, nil
}

// beside is the address of another file of SQLite, with the same options.
func (a address) beside(file string) string {
	uri := sqliteURI(file)
	if _, options, ok := strings.Cut(a.dsn, "?"); ok {
		uri += "?" + options
	}
	return sqliteDSN(uri, true)
}
