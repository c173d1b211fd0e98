package command_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/lib/pq"              // driver "postgres"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var update = flag.Bool("update", false, "write the golden files and docs/cli.md")

// written is when the messages of the tests were written.
var written = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// result is what a command has printed, and its exit code.
type result struct {
	out, err string
	code     int
}

// execute runs the command with an environment of its own.
func execute(ctx context.Context, options command.Options, env map[string]string, args ...string) result {
	var out, err bytes.Buffer
	options.LookupEnv = func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	if options.Interactive == nil {
		options.Interactive = func() bool { return false }
	}
	root := command.New(options)
	root.SetArgs(args)
	root.SetIn(strings.NewReader(""))
	root.SetOut(&out)
	root.SetErr(&err)
	code := command.Execute(ctx, root)
	return result{out.String(), err.String(), code}
}

// bench is a database with an outbox and a queue, and the commands on it.
type bench struct {
	*testing.T

	database   *testdb.Database
	statements *dialect.Statements
	outbox     *spool.Spool
	queue      *spool.Spool
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	database.Migrate(t)
	statements, err := dialect.For(dialect.Kind(database.Dialect), "", "", "")
	require.NoError(t, err)
	return &bench{
		T: t, database: database, statements: statements,
		outbox: spool.New(statements, "outbox"), queue: spool.New(statements, spool.QueuePrefix+"fraud"),
	}
}

func (b *bench) environment() map[string]string {
	return map[string]string{"POSTBOX_DSN": b.database.DSN, "POSTBOX_DIALECT": string(b.database.Dialect)}
}

func (b *bench) run(args ...string) result {
	b.Helper()
	return execute(b.Context(), command.Options{}, b.environment(), args...)
}

// ok runs a command that must succeed, and returns its output.
func (b *bench) ok(args ...string) string {
	b.Helper()
	r := b.run(args...)
	require.Equal(b, command.ExitOK, r.code, "%v: %s", args, r.err)
	return r.out
}

// role makes a role of PostgreSQL with these rights, and returns its name and the commands with it.
func (b *bench) role(grants ...string) (name string, as *bench) {
	b.Helper()
	name = fmt.Sprintf("command_%d_%d", os.Getpid(), time.Now().UnixNano())
	b.database.Exec(b.T, "CREATE ROLE "+name+" LOGIN PASSWORD '"+name+"'")
	b.Cleanup(func() {
		_, err := b.database.DB.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name) //nolint:noctx // the test's context is over
		require.NoError(b, err)
	})
	b.database.Exec(b.T, fmt.Sprintf("DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema() || ' TO %s'; END $$", name))
	for _, grant := range grants {
		b.database.Exec(b.T, "GRANT "+grant+" TO "+name)
	}
	u, err := url.Parse(b.database.DSN)
	require.NoError(b, err)
	u.User = url.UserPassword(name, name)
	database := *b.database
	database.DSN = u.String()
	other := *b
	other.database = &database
	return name, &other
}

func (b *bench) append(to *spool.Spool, drafts ...spool.Draft) {
	b.Helper()
	tx, err := b.database.DB.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	require.NoError(b, to.Append(b.Context(), tx, spool.Run, drafts))
	// In the transaction: to a process that runs, a message with another time is another message.
	_, err = tx.ExecContext(b.Context(), fmt.Sprintf("UPDATE postbox_messages SET created_at = %d", written.UnixMicro()))
	require.NoError(b, err)
	require.NoError(b, tx.Commit())
}

func draft(id, topic, key string) spool.Draft {
	return spool.Draft{
		Topic: topic, MessageID: id, Key: key, Payload: []byte(`{"order":"` + id + `"}`), Metadata: map[string]string{"about": id},
	}
}

// letter writes a dead letter of an inbox.
func (b *bench) letter(id, topic, text string) {
	b.Helper()
	metadata, err := spool.EncodeMetadata(map[string]string{"about": id})
	require.NoError(b, err)
	hash, subject := int64(7), []byte("subject of "+id)
	b.exec(b.statements.InsertFailure(dialect.Failure{Subject: subject, Attempt: 1, Error: text, Process: "host 42"}))
	b.exec(b.statements.InsertDeadLetter(dialect.InboxLetter{
		Letter: dialect.Letter{
			Subject: subject, Spool: b.outboxID(), Topic: topic, MessageID: []byte(id), Payload: []byte(`{"order":"` + id + `"}`), Metadata: metadata, Error: text,
		},
		Consumer: "billing", Source: topic, CarriedID: []byte(id), Key: []byte("customer-1"), KeyHash: &hash, Attempts: 1,
	}))
	b.exec(dialect.Query{Text: b.statements.Claim, Args: []any{subject}})
	b.database.Exec(b.T, "UPDATE postbox_dead_letters SET created_at = ?, died_at = ?", written.UnixMicro(), written.Add(time.Minute).UnixMicro())
	b.database.Exec(b.T, "UPDATE postbox_failures SET failed_at = ?", written.Add(time.Minute).UnixMicro())
}

func (b *bench) exec(query dialect.Query) {
	b.Helper()
	_, err := b.database.DB.ExecContext(b.Context(), query.Text, query.Args...)
	require.NoError(b, err)
}

func (b *bench) outboxID() int64 {
	b.Helper()
	id, err := b.outbox.Open(b.Context(), b.database.DB)
	require.NoError(b, err)
	return id
}

func (b *bench) admin() *admin.Admin {
	b.Helper()
	a, err := admin.New(b.database.Postbox(), admin.Config{}, nil)
	require.NoError(b, err)
	return a
}

var (
	ages    = regexp.MustCompile(`\b\d+d\d+h`)
	files   = regexp.MustCompile(`"[^"]*/postbox\.db"`)
	gaps    = regexp.MustCompile(` {2,}`)
	seconds = regexp.MustCompile(`_seconds":[\d.e+]+`)
	// moments are times of the clock: those of the tests are earlier.
	moments = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
)

// steady replaces what depends on the clock.
func steady(text string) string {
	if ages.MatchString(text) { // the columns are as wide as the ages
		text = gaps.ReplaceAllString(ages.ReplaceAllString(text, "AGE"), "  ")
	}
	text = files.ReplaceAllString(text, `"FILE"`)
	text = seconds.ReplaceAllString(text, `_seconds":AGE`)
	return moments.ReplaceAllStringFunc(text, func(at string) string {
		if strings.HasPrefix(at, "2026-01-") || strings.HasPrefix(at, "2030-") {
			return at
		}
		return "NOW"
	})
}

// golden compares a text with a file, or writes it with -update.
func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return
	}
	want, err := os.ReadFile(path) //nolint:gosec // a file of this test
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing: go test ./command -update writes it", path)
	}
	require.NoError(t, err)
	require.Equal(t, string(want), text, "%s is stale: go test ./command -update writes it", path)
}
