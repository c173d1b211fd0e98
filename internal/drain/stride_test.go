package drain_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A service is down, and so many messages wait for it that a read which passes over all of them
// takes longer than the server lets it. Messages of other topics are handled nevertheless.
func TestStride_G8_others_are_handled_behind_a_topic_with_a_large_backlog(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(1, func(int) string { return "" })...)
		const into = "INSERT INTO postbox_messages (spool, lane, state, available_at, created_at, topic, message_id, payload, metadata) SELECT spool, lane, 0, 0, created_at, 'broken', message_id, payload, metadata FROM postbox_messages m, "
		var db *sql.DB
		if database.Dialect == postbox.PostgreSQL {
			database.Exec(t, into+"generate_series(1, 1000000)")
			db = database.OpenWith(t, "statement_timeout=400")
		} else {
			if !database.IsMariaDB(t) {
				t.Skip("MariaDB is missing: reads on MySQL begin at the first message")
			}
			database.Exec(t, into+"seq_1_to_250000")
			db = database.OpenWith(t, "max_statement_time=0.4")
		}
		b.Append(database.DB, draft("behind", ""))
		handler := &recorder{excluded: []string{"broken"}}
		b.start(db, handler, config("one"))
		b.Eventually(func() bool { return handler.tried("behind") == 1 }, "it is handled")
		require.Zero(t, handler.tried("00001"))
	})
}
