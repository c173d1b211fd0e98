package drain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refuseKeyed lets PostgreSQL refuse, after some time, to remove messages that have a key.
func (b *bench) refuseKeyed(after time.Duration) (end func()) {
	b.T.Helper()
	b.Database.Exec(b.T, fmt.Sprintf("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(%f); RAISE EXCEPTION 'verboten'; END $$", after.Seconds()))
	b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.ordering_key <> '') EXECUTE FUNCTION refuse()")
	return func() { b.Database.Exec(b.T, "DROP TRIGGER refuse ON postbox_messages") }
}

// Each failure that the database refuses to write costs a transaction, and hundreds of them take longer than a lease.
func TestDrainer_G6_leases_are_renewed_while_many_failures_are_refused(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	b := newBench(t, database)
	end := b.refuseKeyed(10 * time.Millisecond)
	const messages = 60 // each refused twice: longer than a lease
	b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
	handler := &recorder{do: func(*spool.Message) error { return postbox.Permanent(errTest) }}
	c := config("one")
	c.Lease, c.Renew = time.Second, 100*time.Millisecond
	log := b.startLogged(database.DB, handler, c)
	b.Eventually(func() bool {
		require.Zero(t, database.Count(t, `SELECT COUNT(*) FROM postbox_lanes WHERE holder <> '' AND expires_at < EXTRACT(EPOCH FROM clock_timestamp()) * 1000000`), "expired lanes")
		return log.Said(toldOfSetbacks) > 0
	}, "messages are refused again and again")
	end()
	b.Eventually(func() bool { return b.Dead() == messages }, "all are written down")
}

// Messages that cannot be removed stay in memory. When they fill it, the log says why nothing is read.
func TestDrainer_says_that_messages_it_cannot_remove_fill_its_memory(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	b := newBench(t, database)
	end := b.refuseKeyed(0)
	b.Append(database.DB, drafts(100, func(i int) string { return fmt.Sprint(i) })...)
	c := config("one")
	c.PageSize = 20
	log := b.startLogged(database.DB, &recorder{}, c)
	const full = "Postbox reads no more messages"
	b.Eventually(func() bool { return log.Said(full) == 1 }, "it is said")
	end()
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
	require.Equal(t, 1, log.Said(full), "it is said once")
}
