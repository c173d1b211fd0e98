package command

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// session is a command on an open database.
type session struct {
	*program
	printer
	cmd        *cobra.Command
	address    address
	db         *sql.DB
	database   postbox.Database
	statements *dialect.Statements
	actor      string // "" is the default of admin
	logDSN     string // "" if no other address is given for the role that reads the log
	sum        *sum   // of all databases, nil where there is one
}

// access says what a command does with the file of SQLite if there is none.
type access int

const (
	existing access = iota
	// inspecting is for commands that look at tables of any deployment.
	inspecting
	// creating makes the file, and compares the deployment itself.
	creating
	// later does not ask the database before the command does.
	later
)

// on returns the function of a command that works on the database.
func (p *program) on(run func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return p.with(existing, run)
}

func (p *program) with(access access, run func(s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		found, err := p.settings.resolve(p.options.LookupEnv)
		if err != nil {
			return err
		}
		return p.run(cmd, access, found, func(s *session) error { return run(s, args) })
	}
}

func (p *program) run(cmd *cobra.Command, access access, on connection, run func(s *session) error) error {
	s, err := p.open(cmd, access, on)
	if err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }()
	if access == existing {
		if err := s.belongs(cmd.Context()); err != nil {
			return s.explain(err)
		}
	}
	return s.explain(run(s))
}

// belongs fails if the tables are not those of the deployment that the user names. Without a name
// any tables are meant.
func (s *session) belongs(ctx context.Context) error {
	if s.database.Deployment == "" {
		return nil
	}
	return s.statements.CheckDeployment(ctx, s.db)
}

// where says which tables a command works on, for a question.
func (s *session) where() string {
	place := s.address.place
	if place == "" {
		place = "at an address that only the driver reads"
	}
	text := fmt.Sprintf("%s, %s, tables %s", s.statements.Kind.Can().Name, place, s.statements.Names.Table("*"))
	if name := s.database.Deployment; name != "" {
		text += fmt.Sprintf(", deployment %q", name)
	}
	return text
}

func (p *program) open(cmd *cobra.Command, access access, found connection) (*session, error) {
	if found.address.dsn == "" {
		return nil, usagef("no database is named: set --dsn or the variable %s", dsnVariable)
	}
	statements, err := statementsFor(found.database)
	if err != nil {
		return nil, err
	}
	if file := found.address.file; file != "" && access != creating && access != later {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("there is no file %q: check the path, or make the tables with \"postbox migrate up\"", file)
		}
	}
	s := &session{program: p, printer: p.printer(cmd), cmd: cmd, address: found.address, database: found.database, statements: statements, actor: found.actor, logDSN: found.logDSN}
	dsn := found.address.dsn
	making := access == creating && found.address.toBeMade()
	if making {
		dsn = found.address.creating
	}
	s.db, err = p.options.Open(OpenParams{Dialect: found.address.dialect, DSN: dsn})
	if err != nil {
		return nil, s.explain(fmt.Errorf("open the database: %w", err))
	}
	s.database.DB = s.db
	if found.address.dialect == postbox.SQLite {
		s.db.SetMaxOpenConns(1)
	}
	if access == later {
		return s, nil
	}
	if err := s.ping(cmd.Context()); err != nil {
		return nil, errors.Join(s.explain(err), s.db.Close())
	}
	if making { // SQLite would let all users of the machine read the payloads
		if err := os.Chmod(found.address.file, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(err, s.db.Close())
		}
	}
	return s, nil
}

func (p *program) printer(cmd *cobra.Command) printer {
	return printer{w: cmd.OutOrStdout(), format: p.output}
}

func statementsFor(database postbox.Database) (*dialect.Statements, error) {
	statements, err := dialect.For(dialect.Kind(database.Dialect), database.Schema, database.Prefix, database.Deployment)
	if err != nil {
		return nil, usage(err)
	}
	return statements, nil
}

// patience is how long the database may take to answer for the first time.
const patience = 30 * time.Second

// ping connects to the database, so that an error that belongs to the address says so.
func (s *session) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.statements.CheckDriver(s.db); err != nil {
		return err
	}
	err := s.connect(ctx)
	if err == nil {
		// The driver has understood the address, so later errors do not quote it. A password such
		// as "postbox" would be taken out of words of their texts.
		s.address.secrets = nil
		return nil
	}
	var network net.Error
	if s.address.opaque && ctx.Err() == nil && !dialect.Coded(err) && !errors.As(err, &network) {
		return errOpaque
	}
	return fmt.Errorf("connect to the database: %w", dialect.HintAtPooler(dialect.HideAddress(err)))
}

// connect makes the first connection. Not every driver heeds ctx while a server that has accepted
// the connection is silent.
func (s *session) connect(ctx context.Context) error {
	answered := make(chan error, 1)
	go func() { answered <- s.db.PingContext(ctx) }()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errOpaque = errors.New("connect to the database: the driver refuses the address, and its error may have parts of a password in it: " +
	"write the address as a URL to see the error")

// admin returns what acts for operators. Messages of inboxes are requeued through the outbox; "" is
// the usual one.
func (s *session) admin(outbox string) (*admin.Admin, error) {
	return admin.New(s.database, admin.Config{Outbox: outbox, Actor: s.actor}, nil)
}

// named returns the ids that the arguments are, and what acts on them.
func (s *session) named(args []string) ([]int64, *admin.Admin, error) {
	ids, err := idsOf(args)
	if err != nil {
		return nil, nil, err
	}
	a, err := s.admin("")
	return ids, a, err
}

// now is the database's clock, which all times of messages belong to.
func (s *session) now(ctx context.Context) (time.Time, error) {
	var micros int64
	if err := s.db.QueryRowContext(ctx, s.statements.Clock).Scan(&micros); err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// progress tells a person how far a long action has got.
func (s *session) progress(format string, args ...any) {
	fmt.Fprintf(s.cmd.ErrOrStderr(), format+"\n", args...)
}

// explainedError has another text than the error that it wraps.
type explainedError struct {
	text string
	err  error
}

// Error returns the text.
func (e *explainedError) Error() string { return e.text }

// Unwrap returns the error.
func (e *explainedError) Unwrap() error { return e.err }

// explain says what to do about an error, and takes secrets out of its text. Only an error that the
// server did not send can have them: it is made from the address by the driver.
func (s *session) explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case dialect.LacksTable(err) || dialect.LacksColumn(err):
		text += fmt.Sprintf("\nTables %s are missing, or are older than this program: run \"postbox migrate up\".", s.statements.Names.Table("*"))
	case dialect.LacksRight(err) && !strings.Contains(text, "GRANT "): // which some errors name
		text += "\nThe role of this command lacks a right: \"postbox doctor\" names the rights that are missing, and docs/security.md has the grants of each role."
	case !dialect.Coded(err):
		text = s.address.hide(text)
	}
	return &explainedError{text, err}
}
