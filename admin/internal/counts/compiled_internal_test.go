package counts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// With 500 outboxes and queues PostgreSQL compiled the two statements that count for 9 of the 10
// seconds of an overview.
func TestOfEach_is_not_compiled(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t).DB
	db.SetMaxOpenConns(1)
	const ask = "SELECT 7, current_setting('jit')"
	var before, during, after string
	require.NoError(t, db.QueryRowContext(t.Context(), ask).Scan(new(int), &before))
	nothing := func([]int64, int) []dialect.Query { return nil }
	all := func([]int64, int) []dialect.Query { return []dialect.Query{{Text: ask}} }
	require.NoError(t, OfEach(t.Context(), db, dialect.PostgreSQL, []int64{7}, 1, nothing, all, func(scan spool.Scan) (id int64, err error) {
		err = scan(&id, &during)
		return id, err
	}))
	require.NoError(t, db.QueryRowContext(t.Context(), ask).Scan(new(int), &after))
	require.Equal(t, []string{"on", "off", "on"}, []string{before, during, after}, "and the session is left as it was")
}
