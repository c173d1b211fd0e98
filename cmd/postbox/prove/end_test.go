package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var runName = regexp.MustCompile(namePrefix + "[0-9a-f]{8}")

// requireNothing fails if there is anything of a run.
func requireNothing(t *testing.T, database *testdb.Database, g given, name string) {
	t.Helper()
	require.NotEmpty(t, name)
	require.Empty(t, leftOf(t, database, g, name))
}

// leftOf are schemas, tables, functions and folders of a run.
func leftOf(t *testing.T, database *testdb.Database, g given, name string) (left []string) {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '" + name + "%'" //nolint:gosec // a name of ours
	switch g.Dialect {
	case postbox.SQLite:
		left, err := filepath.Glob(filepath.Join(filepath.Dir(g.File), name+"*"))
		require.NoError(t, err)
		return left
	case postbox.PostgreSQL:
		query = "SELECT nspname FROM pg_namespace WHERE nspname = '" + name + "' UNION ALL SELECT relname FROM pg_class WHERE starts_with(relname, '" + name +
			"') UNION ALL SELECT proname FROM pg_proc WHERE starts_with(proname, '" + name + "')"
	case postbox.MySQL:
	}
	rows, err := database.DB.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		left = append(left, text)
	}
	require.NoError(t, rows.Err())
	return left
}

func TestRun_that_is_interrupted_leaves_nothing(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, database *testdb.Database) {
		g := on(database, t.TempDir())
		g.Duration = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		name := ""
		o := g.options("{}", func(text string) {
			if found := runName.FindString(text); strings.HasPrefix(text, "In ") {
				name = found
			}
			if strings.Contains(text, "messages committed") {
				cancel()
			}
		})
		program, processes := o.Program, []*exec.Cmd{}
		o.Program = func() (*exec.Cmd, error) {
			cmd, err := program()
			processes = append(processes, cmd)
			return cmd, err
		}
		_, err := Run(ctx, o)
		require.ErrorIs(t, err, context.Canceled)
		requireNothing(t, database, g, name)
		for _, p := range processes {
			require.NotNil(t, p.ProcessState, "all have ended")
		}
	})
}

func TestRun_removes_what_a_killed_one_has_left(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, database *testdb.Database) {
		g := on(database, t.TempDir())
		g.Duration = time.Hour
		text, err := json.Marshal(g)
		require.NoError(t, err)
		parent := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test itself
		parent.Env = append(os.Environ(), parentVariable+"="+string(text))
		output, err := parent.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, parent.Start())
		name, said := "", []string{}
		for lines := bufio.NewScanner(output); lines.Scan(); { // to the end, which comes when all processes have ended
			said = append(said, lines.Text())
			if found := runName.FindString(lines.Text()); strings.HasPrefix(lines.Text(), "In ") {
				name = found
			}
			if lines.Text() == allStarted {
				require.NoError(t, parent.Process.Kill())
			}
		}
		require.Error(t, parent.Wait())
		require.Contains(t, said, allStarted)
		require.NotEmpty(t, leftOf(t, database, g, name), said)

		sweep := func() string {
			said := ""
			p, err := open(t.Context(), g.options("{}", nil))
			require.NoError(t, err)
			defer func() { require.NoError(t, p.close()) }()
			require.NoError(t, p.sweep(t.Context(), func(text string) { said += text + "\n" }))
			return said
		}
		require.Regexp(t, "Another run may work in .*"+name, sweep(), "it lived a moment ago")
		require.NotEmpty(t, leftOf(t, database, g, name))
		switch g.Dialect {
		case postbox.SQLite:
			require.NoError(t, os.Chtimes(filepath.Join(filepath.Dir(g.File), name), time.Time{}, time.Now().Add(-2*dead)))
		case postbox.PostgreSQL:
			database.Exec(t, "UPDATE "+name+".prove_run SET beat = beat - 120000000")
		case postbox.MySQL:
			database.Exec(t, "UPDATE "+name+"_prove_run SET beat = beat - 120000000")
		}
		last := sweep()
		if g.Dialect != postbox.PostgreSQL { // where a run of another test, in the same database, may remove it first
			require.Regexp(t, "Removed .*"+name, last)
		}
		require.Eventually(t, func() bool { return len(leftOf(t, database, g, name)) == 0 }, time.Minute, testdb.PollPause, last)
	})
}

// A role has the rights that Postbox needs, and no more.
func TestRun_by_a_role(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	var schema, name string
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema))
	role := schema + "_prover"
	database.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'prove'")
	defer func() { database.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role) }()
	g := on(database, "")
	g.DSN = regexp.MustCompile(`//[^@]*@`).ReplaceAllString(g.DSN, "//"+role+":prove@")
	g.Duration = time.Second

	refusal := func(text string) {
		t.Helper()
		_, err := Run(t.Context(), g.options("{}", func(string) {}))
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, text)
	}
	refusal("may create neither a schema nor tables")
	database.Exec(t, "GRANT USAGE, CREATE ON SCHEMA "+schema+" TO "+role)
	database.Exec(t, "ALTER ROLE "+role+" CONNECTION LIMIT 20")
	refusal("free connections for this role, and a run needs")
	database.Exec(t, "ALTER ROLE "+role+" CONNECTION LIMIT -1")
	database.Exec(t, "ALTER ROLE "+role+" SET default_transaction_read_only = on")
	refusal("takes no writes")
	database.Exec(t, "ALTER ROLE "+role+" RESET default_transaction_read_only")

	name = ""
	o := g.options("{}", func(text string) {
		if strings.HasPrefix(text, "In tables ") {
			name = runName.FindString(text)
		}
	})
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.True(t, report.Kept, report)
	requireNothing(t, database, g, name)
}

func TestRun_refuses_a_database_in_memory(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), given{Dialect: postbox.SQLite, DSN: ":memory:"}.options("{}", func(string) {}))
	require.ErrorIs(t, err, errRefused)
}
