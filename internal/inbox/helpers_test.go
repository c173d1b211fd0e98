package inbox_test

import (
	"database/sql"
	"testing"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// queueBench is a bench, with methods of this package.
type queueBench struct{ *inboxtest.Bench }

func newQueueBench(t *testing.T, database *testdb.Database) *queueBench {
	t.Helper()
	return &queueBench{inboxtest.New(t, database)}
}

// over is the same queue through another handle.
func (b *queueBench) over(db *sql.DB) *queueBench { return &queueBench{b.Over(db)} }
