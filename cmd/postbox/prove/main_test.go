package prove

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // driver "mysql"
	_ "github.com/lib/pq"              // driver "postgres"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // driver "sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// childVariable makes the test binary a process of a run, with the flaws that it names as JSON,
	// and parentVariable a run on a database that it describes as JSON.
	childVariable  = "POSTBOX_PROVE_TEST_CHILD"
	parentVariable = "POSTBOX_PROVE_TEST_PARENT"
	// allStarted is what a run prints when it has started so many processes, some of them again.
	allStarted         = "all have started"
	connectedProcesses = 14
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		if err := json.Unmarshal([]byte(text), &planted); err != nil {
			panic(err)
		}
		if Process(context.Background(), openDialect, os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if text := os.Getenv(parentVariable); text != "" {
		var place given
		if err := json.Unmarshal([]byte(text), &place); err != nil {
			panic(err)
		}
		o := place.options("{}", func(text string) { fmt.Fprintln(os.Stderr, text) })
		program, started := o.Program, 0
		o.Program = func() (*exec.Cmd, error) {
			cmd, err := program()
			cmd.Stderr = os.Stderr // so that the test sees when the last one has ended
			if started++; started == connectedProcesses {
				fmt.Fprintln(os.Stderr, allStarted)
			}
			return cmd, err
		}
		_, err := Run(context.Background(), o)
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func openDialect(dialect postbox.Dialect, dsn string) (*sql.DB, error) {
	return sql.Open(map[postbox.Dialect]string{postbox.PostgreSQL: "postgres", postbox.MySQL: "mysql", postbox.SQLite: "sqlite"}[dialect], dsn)
}

// given is the database of a test.
type given struct {
	Dialect   postbox.Dialect
	DSN, File string
	Pooler    string
	Duration  time.Duration
}

func on(database *testdb.Database, dir string) given {
	g := given{Dialect: database.Dialect, DSN: database.DSN, Duration: 2 * time.Second}
	if g.Dialect == postbox.SQLite {
		g.File = filepath.Join(dir, "shop.db")
	}
	return g
}

func (g given) options(flaws string, say func(string)) Options {
	return Options{
		Open: func(dsn string) (*sql.DB, error) { return openDialect(g.Dialect, dsn) }, Dialect: g.Dialect, DSN: g.DSN, File: g.File,
		Address: func(file string) string {
			return "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		},
		PoolerDSN: g.Pooler, Duration: g.Duration, Seed: 46, Say: say,
		Program: func() (*exec.Cmd, error) {
			cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // this test itself
			cmd.Env = append(os.Environ(), childVariable+"="+flaws)
			return cmd, nil
		},
	}
}

func runOn(t *testing.T, g given, flaws string, patience time.Duration) *Report {
	t.Helper()
	o := g.options(flaws, func(text string) { t.Log(text) })
	o.Patience = patience
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	t.Log(report.Result())
	return report
}
