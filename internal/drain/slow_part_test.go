package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The server ends statements that take longer than a limit of the role. Failures stored together
// do, and a few of them would not.
func TestSettlement_G8_a_part_that_the_server_ends_is_halved(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const messages = 64
		limit := "statement_timeout=600"
		if database.Dialect != postbox.PostgreSQL {
			if !database.IsMariaDB(t) {
				t.Skip("MariaDB is missing: MySQL ends no statements that write")
			}
			limit = "max_statement_time=0.6"
		}
		b := newBench(t, database)
		b.slowFailures("0.02") // 1.28 seconds together
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
		c := config("one")
		c.PageSize, c.Workers, c.BatchSize = 2*messages, 1, messages
		c.Lease, c.Renew = time.Minute, 20*time.Second // so a part has far more time than the server gives it
		c.Retry = retries.WithDefaults(postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}, 3)
		handler := &recorder{do: func(*spool.Message) error { return errTest }}
		b.start(database.OpenWith(t, limit), handler, c)
		b.Eventually(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1") == messages
		}, "all failures are stored")
		require.Equal(t, 1, handler.tried("00000"))
	})
}
