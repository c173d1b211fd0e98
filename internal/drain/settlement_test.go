package drain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Thousands of messages fail at once, for example when a service is down. Their failures are stored
// many at a time, so that this takes moments also where the database is far away.
func TestSettlement_G8_thousands_of_failures_take_few_round_trips(t *testing.T) {
	t.Parallel()
	const messages, trips = 2000, 400 // those of polls and renewals are among them
	for name, verdict := range map[string]error{"retried": errTest, "dead": postbox.Permanent(errTest)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
				db, distance := database.OpenDistant(t)
				handler := &recorder{do: func(*spool.Message) error { return verdict }}
				c := config("one")
				c.PageSize, c.Workers, c.BatchSize = messages, 16, 1
				c.PollMin, c.PollMax, c.Renew, c.Lease = time.Second, time.Second, 20*time.Second, time.Minute
				c.Retry = retries.WithDefaults(postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}, 3)
				b.start(db, handler, c)
				b.Eventually(func() bool {
					return database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt = 1") == messages
				}, "all failures are stored")
				require.LessOrEqual(t, distance.Trips(), trips)
				if !errors.Is(verdict, postbox.ErrPermanent) {
					require.Equal(t, messages, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1"))
				} else {
					require.Equal(t, messages, b.Dead())
					require.Zero(t, b.Pending())
				}
			})
		})
	}
}

// Failures that take the database longer than a lease are stored in parts, between which the leases
// are renewed. So no other process takes the lanes and handles the messages again, and the log does
// not say that the database is gone.
func TestSettlement_G6_leases_are_kept_while_many_failures_are_stored_slowly(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const messages, lease = 250, 6 * time.Second
		b := newBench(t, database)
		b.slowFailures("0.05") // 12.5 seconds together
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
		handler := &recorder{do: func(*spool.Message) error { return errTest }}
		slow := func(holder string) drain.Config {
			c := config(holder)
			c.PageSize, c.Lease, c.Renew = messages, lease, lease/3
			c.Retry = retries.WithDefaults(postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}, 3)
			return c
		}
		log := b.startLogged(database.DB, handler, slow("one"))
		b.start(database.DB, handler, slow("two"))
		b.Eventually(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1") == messages
		}, "all failures are stored")
		for i := range messages {
			require.Equal(t, 1, handler.tried(fmt.Sprintf("%05d", i)), "message %d", i)
		}
		require.Zero(t, log.Said("Postbox cannot reach its database and goes on trying"))
	})
}

// A message that fails is stored in a transaction that takes long. Meanwhile others are read,
// handled and removed, and those with its key are not.
func TestSettlement_G8_others_go_on_while_a_failure_is_stored(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		release := b.holdFailures()
		c := config("one")
		c.Lease, c.Renew = time.Hour, 10*time.Minute // so that the part is not late
		c.Retry = retries.WithDefaults(postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}, 1)
		handler := &recorder{do: func(m *spool.Message) error {
			if m.MessageID == "00000" {
				return errTest
			}
			return nil
		}}
		b.Append(database.DB, drafts(1, func(int) string { return "bad" })...)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return handler.tried("00000") == 1 }, "the message fails")

		good := func(key string, ids ...string) {
			for _, id := range ids {
				b.Append(database.DB, spool.Draft{Topic: "orders", MessageID: id, Key: key})
			}
		}
		good("bad", "behind", "further behind")
		good("good", "first", "second")
		b.Eventually(func() bool { return handler.tried("second") == 1 && b.Pending() == 3 }, "those of another key go on")
		good("third", "third")
		b.Eventually(func() bool { return handler.tried("third") == 1 && b.Pending() == 3 }, "and on")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
		require.Zero(t, handler.tried("behind")+handler.tried("further behind"))

		release()
		b.Eventually(func() bool { return b.Pending() == 0 && b.Dead() == 1 }, "its key goes on, since it is dead")
		require.Equal(t, []string{"first", "second", "third", "behind", "further behind"}, handler.ids())
	})
}

// holdFailures makes the storing of failures wait for what it returns.
func (b *bench) holdFailures() (release func()) {
	b.T.Helper()
	db := b.Database
	text, begin, end := "CREATE TRIGGER held AFTER INSERT ON postbox_failures FOR EACH ROW DO GET_LOCK(DATABASE(), 600)", "DO GET_LOCK(DATABASE(), 0)", "DO RELEASE_LOCK(DATABASE())"
	if db.Dialect == postbox.PostgreSQL {
		db.Exec(b.T, "CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NULL; END $$")
		text, begin, end = "CREATE TRIGGER held AFTER INSERT ON postbox_failures FOR EACH ROW EXECUTE FUNCTION held()",
			"SELECT pg_advisory_lock(hashtext(current_schema()))", "SELECT pg_advisory_unlock(hashtext(current_schema()))"
	}
	db.Exec(b.T, text)
	conn, err := db.DB.Conn(b.T.Context())
	require.NoError(b.T, err)
	b.T.Cleanup(func() { _ = conn.Close() })
	_, err = conn.ExecContext(b.T.Context(), begin)
	require.NoError(b.T, err)
	return func() {
		_, err := conn.ExecContext(b.T.Context(), end)
		require.NoError(b.T, err)
	}
}

// slowFailures makes the database take this many seconds to store each failure.
func (b *bench) slowFailures(seconds string) {
	b.T.Helper()
	if b.Database.Dialect != postbox.PostgreSQL {
		b.Database.Exec(b.T, "CREATE TRIGGER slow AFTER INSERT ON postbox_failures FOR EACH ROW DO SLEEP("+seconds+")")
		return
	}
	b.Database.Exec(b.T, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep("+seconds+"); RETURN NULL; END $$")
	b.Database.Exec(b.T, "CREATE TRIGGER slow AFTER INSERT ON postbox_failures FOR EACH ROW EXECUTE FUNCTION slow()")
}
