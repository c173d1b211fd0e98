package drain_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// fileOf returns the path of SQLite's file.
func fileOf(t *testing.T, database *testdb.Database) (path string) {
	t.Helper()
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path))
	return path
}

// A drainer whose file is not at its path any more would go on with a file that no other process
// sees. It ends with an error instead, and hands out nothing more.
func TestDrainer_ends_when_its_file_is_moved_away_or_replaced(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, path string) error{
		"replaced by an older copy": func(t *testing.T, path string) error {
			t.Helper()
			other := testdb.SQLite(t).Migrate(t)
			from := fileOf(t, other)
			require.NoError(t, other.DB.Close())
			return os.Rename(from, path)
		},
		"moved away": func(t *testing.T, path string) error { t.Helper(); return os.Rename(path, path+".moved") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			b := newBench(t, database)
			b.Append(database.DB, draft("before", "k"))
			handler := &recorder{}
			db := database.Open(t)
			ended := make(chan error, 1)
			drainer := drain.New(db, spool.New(b.Statements, b.Spool.Name()), handler, config("one"), watermill.NopLogger{})
			go func() { ended <- drainer.Run(t.Context()) }()
			b.Eventually(func() bool { return b.Pending() == 0 }, "it works")

			require.NoError(t, take(t, fileOf(t, database)))
			select {
			case err := <-ended:
				require.ErrorIs(t, err, drain.ErrReplaced)
				require.ErrorContains(t, err, "restart this process")
			case <-time.After(patience):
				require.FailNow(t, "it goes on with the old file")
			}
			require.Equal(t, []string{"before"}, handler.ids())
		})
	}
}
