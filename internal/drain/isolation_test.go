package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Sessions are SERIALIZABLE by default, and so are the drainer's reads, which begin no transaction.
// They conflict with transactions that write what they have read over: the next read comes soon,
// and no message is blamed.
func TestDrainer_G7_default_isolation_of_serializable_counts_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect != postbox.PostgreSQL {
			return // there a read without a transaction is the same at each level
		}
		const producers, each = 4, 50
		b := newBench(t, database)
		serializable := *database
		serializable.DSN = withOption(t, database.DSN, "-c default_transaction_isolation=serializable")
		db := serializable.Open(t)
		handler := &recorder{}
		log := b.startLogged(db, handler, config("one"))
		var running sync.WaitGroup
		for producer := range producers {
			running.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d %02d", producer, i)
					if err := b.produce(db, id); err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
		require.Len(t, handler.ids(), producers*each, "each once")
		require.Zero(t, b.Dead())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
		require.LessOrEqual(t, len(log.At(watermill.ErrorLogLevel)), 1, "it is said once, if at all")
		t.Logf("%d steps of the drainer conflicted", log.Said("Postbox is blocked: "))
	})
}

// produce writes a message in a transaction that has looked at all messages, again until it does
// not conflict.
func (b *bench) produce(db *sql.DB, id string) error {
	deadline := time.Now().Add(patience)
	for {
		err := b.produceOnce(db, id)
		if b.Statements.Kind.Classify(err) != dialect.Conflict || time.Now().After(deadline) {
			return err
		}
	}
}

func (b *bench) produceOnce(db *sql.DB, id string) error {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM postbox_messages").Scan(&n); err != nil {
		return err
	}
	if err := b.Spool.Append(ctx, tx, spool.Run, []spool.Draft{draft(id, id[:1])}); err != nil {
		return err
	}
	return tx.Commit()
}

// withOption adds an option for the server to an address.
func withOption(t *testing.T, dsn, option string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	query := address.Query()
	query.Set("options", option)
	address.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx takes a plus as it is
	return address.String()
}
