package command

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/prove"
)

// Options are what a program can change about the commands. The zero value has all defaults.
type Options struct {
	// Open opens the database. Defaults to sql.Open with the driver "postgres", "mysql" or
	// "sqlite": import the ones that your users need. With lib/pq it has binary_parameters=yes, as
	// a pooler in transaction mode needs.
	Open func(OpenParams) (*sql.DB, error)
	// Version is what --version prints. Defaults to "unknown".
	Version string
	// LookupEnv reads a variable of the environment. Defaults to os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// Interactive says whether a person can answer a question. Defaults to whether the standard
	// input is a terminal.
	Interactive func() bool
}

// OpenParams say which database to open.
type OpenParams struct {
	// Dialect is the kind of database.
	Dialect postbox.Dialect
	// DSN is the address, as lib/pq, go-sql-driver/mysql and modernc.org/sqlite take it. It may
	// contain a password.
	DSN string
}

// driverNames are the names under which the usual drivers register themselves.
var driverNames = map[postbox.Dialect]string{postbox.PostgreSQL: "postgres", postbox.MySQL: "mysql", postbox.SQLite: "sqlite"}

func (o *Options) setDefaults() {
	if o.Open == nil {
		o.Open = func(p OpenParams) (*sql.DB, error) {
			return prove.OpenPooled(func(dsn string) (*sql.DB, error) { return sql.Open(driverNames[p.Dialect], dsn) }, p.DSN)
		}
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.Interactive == nil {
		o.Interactive = func() bool { return isTerminal(os.Stdin) }
	}
}

// isTerminal says whether a stream is a terminal, or another device of characters.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// program has the options, and the flags that all commands share.
type program struct {
	options  Options
	settings settings
	output   string
	yes      bool
}

// New returns the command postbox with all its commands. Each call returns a tree of its own. Run
// it with [Execute].
func New(options Options) *cobra.Command {
	options.setDefaults()
	p := &program{options: options}
	root := group("postbox", "Operate the outboxes, queues and dead letters of Postbox", rootHelp,
		p.migrateCommand(), p.doctorCommand(), p.findCommand(),
		p.queuesCommand(), p.inboxesCommand(), p.messagesCommand(), p.deadCommand(), p.keysCommand(), p.topicsCommand(), p.lanesCommand(), p.tailCommand(),
		p.pauseCommand(), p.resumeCommand(), p.setCommand(), p.auditCommand(), p.replayCommand(), p.receiptsCommand(),
		p.drainCommand(), p.checkCommand(), p.logCommand(), p.dashboardCommand(), p.proveCommand(),
	)
	root.Version = options.Version
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(plainFlagError(err)) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := cmd.ValidateFlagGroups(); err != nil { // which cobra would do later, and not as wrong usage
			return usage(err)
		}
		return errors.Join(checkEmpty(cmd.Flags()), checkFormat(p.output))
	}
	flags := root.PersistentFlags()
	p.settings.addTo(flags)
	flags.StringVarP(&p.output, "output", "o", formatTable, "format of the output: table, json or jsonl")
	flags.BoolVarP(&p.yes, "yes", "y", false, "do not ask for a confirmation")
	completes(root, "output", formats...)
	completes(root, "dialect", string(postbox.PostgreSQL), string(postbox.MySQL), string(postbox.SQLite))
	root.InitDefaultVersionFlag()
	return root
}

const rootHelp = `Operate the outboxes, queues and dead letters of Postbox.

The database is named by --dsn, by the variable POSTBOX_DSN, or by a file that
--config names. Prefer the variable or the file: other users of the machine can
see the flags of a process. These are addresses:

  postgres://user:password@host:5432/shop?sslmode=require
  mysql://user:password@host:3306/shop
  sqlite:///var/lib/shop/postbox.db, or the path of the file

With --dialect the address may also have another form that the driver takes.

Name several databases with --dsn again and again, or with several lines
POSTBOX_DSN in the file. Commands that list something then list it for each
database, "queues" shows the sum, and "dashboard" has all. Other commands work
on one.

The file has lines NAME=VALUE with the names POSTBOX_DSN, POSTBOX_DIALECT,
POSTBOX_SCHEMA, POSTBOX_PREFIX, POSTBOX_DEPLOYMENT, POSTBOX_ACTOR and
POSTBOX_LOG_DSN. Lines that begin with # are comments. These names are also
variables of the environment. A flag comes before a variable, and a variable
before the file.

The output is a table for people. With -o json it is one JSON array, or one
object for a single result. With -o jsonl each line is a JSON object. Control
characters in topics, keys and errors are printed as escape sequences. A name that
a shell would change is printed in quotes: copy it with them. Progress and
questions go to the standard error. "postbox completion --help" says how a shell
completes the commands.

Exit codes:
  0  done
  1  an error, for example of the database
  2  wrong usage, for example an unknown flag
  3  the command worked, and the answer is no: check, doctor, drain, find,
     log check, log setup, migrate status and prove
  4  stopped before its end: by a signal, or by the answer to a question`

// group returns a command that only has other commands.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	command := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(commands...)
	return command
}

// arguments checks the arguments of a command, and reports a mistake as wrong usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usage(err)
		}
		return nil
	}
}

// checkEmpty refuses a flag without a value: the variable of a script may be unset, and the command
// would act on more than is meant. An empty setting of the connection has a meaning.
func checkEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "dsn", "config", "dialect", "schema", "prefix", "deployment":
			return
		}
		if flag.Value.Type() == "string" && flag.Value.String() == "" && err == nil {
			err = usagef("--%s is empty: give it a value, or leave it out", flag.Name)
		}
	})
	return err
}

// plainFlagError says in words of the program what is wrong with the value of a flag: the parser
// names its functions.
func plainFlagError(err error) error {
	var wrong *pflag.InvalidValueError
	var number *strconv.NumError
	if !errors.As(err, &wrong) || !errors.As(err, &number) {
		return err
	}
	kind := "a whole number"
	switch {
	case wrong.GetFlag().Value.Type() == "bool":
		kind = "true or false"
	case errors.Is(err, strconv.ErrRange):
		kind = "a number of that size"
	}
	return fmt.Errorf("--%s: %.40q is not %s", wrong.GetFlag().Name, wrong.GetValue(), kind)
}

// completes offers the values of a flag to the shell.
func completes(cmd *cobra.Command, flag string, values ...string) {
	// The only error is that there is no such flag, or that it was given values before.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(slices.Clone(values), cobra.ShellCompDirectiveNoFileComp))
}
