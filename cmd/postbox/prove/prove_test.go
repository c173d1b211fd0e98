package prove

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// eachServer runs a test on each kind of database: the processes have lib/pq.
func eachServer(t *testing.T, test func(t *testing.T, database *testdb.Database)) {
	t.Helper()
	for name, database := range map[string]func(*testing.T) *testdb.Database{"postgres": testdb.Postgres, "mariadb": testdb.MySQL, "sqlite": testdb.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, database(t))
		})
	}
}

func TestRun_keeps_all_promises(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, database *testdb.Database) {
		g := on(database, t.TempDir())
		report := runOn(t, g, "{}", 0)
		require.True(t, report.Kept, report.Result())
		require.Positive(t, report.Kills)
		require.Positive(t, report.BrokerFailures)
		if g.Dialect != postbox.SQLite {
			require.Positive(t, report.CutConnections)
		}
	})
}

func TestRun_through_a_pooler_keeps_all_promises(t *testing.T) {
	t.Parallel()
	pooler := os.Getenv("TEST_PGBOUNCER_DSN")
	if pooler == "" {
		t.Skip("PgBouncer is missing")
	}
	g := on(testdb.Postgres(t), "")
	t.Run("some processes", func(t *testing.T) {
		t.Parallel()
		g := g
		g.Pooler = pooler
		report := runOn(t, g, "{}", 0)
		require.True(t, report.Kept, report.Result())
		require.Positive(t, report.CutConnections)
	})
	t.Run("all processes", func(t *testing.T) {
		t.Parallel()
		g := g
		g.DSN = pooler
		report := runOn(t, g, "{}", 0)
		require.True(t, report.Kept, report.Result())
		require.Contains(t, report.String(), "connections cut outside of transactions: --dsn leads through a pooler")
	})
}

// What a run must find, on each kind of server: a run that finds nothing proves nothing.
func TestRun_finds_what_is_planted(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]struct {
		flaws    string
		database func(*testing.T) *testdb.Database
		found    func(*Report) int
	}{
		"an early ack loses messages":          {`{"Early": true}`, testdb.Postgres, func(r *Report) int { return r.Lost }},
		"an effect outside of the transaction": {`{"Outside": true}`, testdb.Postgres, func(r *Report) int { return r.AppliedTwice }},
		"an effect twice":                      {`{"Twice": true}`, testdb.SQLite, func(r *Report) int { return r.AppliedTwice }},
		"a queue without order":                {`{"Unordered": true}`, testdb.MySQL, func(r *Report) int { return r.OrderViolations }},
		"a message outside of the transaction": {`{"Leaks": true}`, testdb.MySQL, func(r *Report) int { return r.NeverCommitted }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := runOn(t, on(plant.database(t), t.TempDir()), plant.flaws, 3*time.Second)
			require.False(t, report.Kept, report.Result())
			require.Positive(t, plant.found(report), report.Result())
			require.NotEmpty(t, report.Examples)
		})
	}
}
