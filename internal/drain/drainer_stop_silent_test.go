package drain_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// lockTable locks the table of messages, and that of waiting ones, as a change of the schema does,
// and returns a function that unlocks it.
func (b *bench) lockTable() (unlock func()) {
	b.T.Helper()
	conn, err := b.Database.DB.Conn(b.T.Context())
	require.NoError(b.T, err)
	lock, free := []string{"BEGIN", "LOCK TABLE postbox_messages IN ACCESS EXCLUSIVE MODE"}, "ROLLBACK"
	if b.Statements.Kind == dialect.MySQL {
		lock, free = []string{"LOCK TABLES postbox_messages WRITE"}, "UNLOCK TABLES"
	}
	b.Eventually(func() bool { // on PostgreSQL it may deadlock with a statement of the drainer
		for _, text := range lock {
			if _, err = conn.ExecContext(b.T.Context(), text); err != nil {
				_, _ = conn.ExecContext(b.T.Context(), free)
				return false
			}
		}
		return true
	}, "the table is locked")
	unlock = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.Background(), free)
		require.NoError(b.T, err)
		require.NoError(b.T, conn.Close())
	})
	b.T.Cleanup(unlock) // before the drainer's own end, which would wait for it
	return unlock
}

// waitForTable looks for statements that wait for the lock of lockTable.
func (b *bench) waitForTable() bool {
	if b.Statements.Kind == dialect.MySQL {
		return b.Database.Count(b.T, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE 'Waiting for table metadata lock%'") > 0
	}
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation IN ('postbox_messages'::regclass, 'postbox_waiting'::regclass)") > 0
}

// obedient is a handler that waits for the end of its context.
type obedient struct{ begun, ended chan struct{} }

func (o obedient) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	close(o.begun)
	<-ctx.Done()
	close(o.ended)
	return make([]spool.Outcome, len(batch))
}

func (obedient) Excluded() []string { return nil }

// A read waits for the lock of a table when the drainer is told to stop. It would wait for half a
// minute. The drainer ends it, and still hands back its lanes.
func TestDrainer_G12_stops_although_a_table_is_locked(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := obedient{begun: make(chan struct{}), ended: make(chan struct{})}
		b.Append(database.DB, draft("slow", ""))
		c := config("one")
		c.Close = 100 * time.Millisecond
		one := b.start(database.DB, handler, c)
		signal(t, handler.begun, "it runs")
		unlock := b.lockTable()
		b.Eventually(b.waitForTable, "a statement waits for the table")
		began := time.Now()
		one.cancel()
		signal(t, handler.ended, "the context of the handler ends")
		one.stop(t)
		require.Less(t, time.Since(began), spool.StatementTimeout, "it does not wait for the end of the statement")
		unlock()
		require.Zero(t, b.held("one"), "all lanes are free")
		require.Equal(t, 1, b.Pending(), "the message is handled again")
	})
}

// While a step waits for the database, the workers have messages that they have not begun. What
// they begin after the drainer was told to stop would be handled again. Also covers G2.
func TestDrainer_G12_begins_nothing_more_although_a_table_is_locked(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 30 // fewer than fill the memory, so that the drainer goes on reading
		entered, proceed := make(chan struct{}), make(chan struct{})
		enter := sync.OnceFunc(func() { close(entered) })
		handler := &recorder{do: func(*spool.Message) error {
			enter()
			<-proceed
			<-time.After(20 * time.Millisecond) // all of them take less than the step may
			return nil
		}}
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
		c := config("one")
		c.Workers, c.BatchSize, c.Close = 1, 1, 100*time.Millisecond
		one := b.start(database.DB, handler, c)
		signal(t, entered, "it runs")
		unlock := b.lockTable()
		b.Eventually(b.waitForTable, "a statement waits for the table")
		one.cancel()
		close(proceed)
		one.stop(t)
		unlock()
		require.Less(t, len(handler.ids()), messages/3)
	})
}
