package spool

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// newOutbox returns a spool in the database, whose tables it makes.
func newOutbox(t *testing.T, database *testdb.Database, lanes int) *Spool {
	t.Helper()
	database.Migrate(t)
	statements, err := StatementsFor(database.Dialect, postbox.Tables{})
	require.NoError(t, err)
	return New(statements, "outbox", lanes)
}

// newStepped returns a drainer that a test takes through its steps, and a function that ends it.
func newStepped(db *sql.DB, own *Spool, page int) (d *Drainer, end func()) {
	d = NewDrainer(db, own, everything{}, Config{
		Holder: "one", PageSize: page, InlineBytes: InlineBytes, BatchSize: 1, Workers: 1,
		PollMin: time.Millisecond, PollMax: time.Second, Lease: time.Minute, Renew: time.Minute,
	}, watermill.NopLogger{})
	return d, func() {
		d.scheduler.stop()
		d.workers.Wait()
		d.removal.running.Wait() // it needs the prepared statements
		d.prepared.Close()
	}
}

// everything is a handler that leaves out no topic.
type everything struct{ Handler }

func (everything) Excluded() []string { return nil }
