package enginetest

import (
	"database/sql"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// PageReads returns how many different pages of its file SQLite reads for a statement, which does
// not tell how many rows it reads. The memory of the handle holds them all, so none is read twice:
// in this build all handles of a process share their memory, and with little of it the number would
// depend on what other tests do. It needs Linux, which counts the bytes that a thread reads.
func PageReads(t *testing.T, database *testdb.Database, query dialect.Query) int {
	t.Helper()
	const pageSize = 4096
	db := database.OpenWith(t, "_pragma=cache_size(100000)")
	defer func() { require.NoError(t, db.Close()) }()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	consumeAll(t, db, dialect.Query{Text: "SELECT COUNT(*) FROM sqlite_schema"}) // opens the file
	before := bytesRead(t)
	consumeAll(t, db, query)
	return (bytesRead(t) - before) / pageSize
}

func consumeAll(t *testing.T, db *sql.DB, query dialect.Query) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query.Text, query.Args...)
	consume(t, rows, err)
}

// bytesRead is how many bytes this thread has read so far, also of files that are in memory.
func bytesRead(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/io")
	require.NoError(t, err, "the test needs Linux")
	for line := range strings.Lines(string(text)) {
		if count, found := strings.CutPrefix(line, "rchar: "); found {
			n, err := strconv.Atoi(strings.TrimSpace(count))
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "Linux does not count what a thread reads")
	return 0
}
