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

// countUnrenewed makes PostgreSQL count the tries to remove a message that has a key, and those
// among them before which no lease was renewed since the try before. Sequences keep their values
// when a transaction is rolled back.
func (b *bench) countUnrenewed() (counts func() (tries, unrenewed int)) {
	b.T.Helper()
	for _, statement := range []string{
		"CREATE SEQUENCE tries MINVALUE 0", "CREATE SEQUENCE unrenewed MINVALUE 0", "CREATE SEQUENCE renewals MINVALUE 0", "CREATE SEQUENCE seen MINVALUE 0",
		"SELECT setval('tries', 0), setval('unrenewed', 0), setval('renewals', 0)",
		"CREATE FUNCTION renewed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('renewals'); RETURN NULL; END $$",
		"CREATE TRIGGER renewed AFTER UPDATE ON postbox_members FOR EACH STATEMENT EXECUTE FUNCTION renewed()",
		`CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			PERFORM nextval('tries');
			IF (SELECT n.last_value = s.last_value FROM renewals n, seen s) THEN PERFORM nextval('unrenewed'); END IF;
			PERFORM setval('seen', n.last_value) FROM renewals n;
			RETURN OLD;
		END $$`,
		"CREATE TRIGGER counted BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.ordering_key <> '') EXECUTE FUNCTION counted()", // its name is before refuse
	} {
		b.Database.Exec(b.T, statement)
	}
	return func() (tries, unrenewed int) {
		b.T.Helper()
		return b.Database.Count(b.T, "SELECT last_value FROM tries"), b.Database.Count(b.T, "SELECT last_value FROM unrenewed")
	}
}

// Each failure that the database refuses to write costs a transaction, and hundreds of them take
// longer than a lease. Renewals are due in the time of each, and do not wait for them.
func TestDrainer_G6_leases_are_renewed_while_many_failures_are_refused(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	b := newBench(t, database)
	const messages, takes = 20, 10 * time.Millisecond
	counts, end := b.countUnrenewed(), b.refuseKeyed(takes)
	b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
	handler := &recorder{do: func(*spool.Message) error { return postbox.Permanent(errTest) }}
	c := config("one")
	c.Renew = takes / 2
	log := b.startLogged(database.DB, handler, c)
	b.Eventually(func() bool { return log.Said(toldOfSetbacks) > 0 }, "messages are refused again and again")
	tries, unrenewed := counts()
	require.Greater(t, tries, 2*messages)
	require.Less(t, unrenewed, tries/2, "renewals go on beside them")
	end()
	b.Eventually(func() bool { return b.Dead() == messages }, "all are written down")
}

// Messages that cannot be removed stay in memory. When they fill it, the log says why nothing is
// read.
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
