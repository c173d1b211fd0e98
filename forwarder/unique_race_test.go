package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The database decides between transactions that publish under one key at the same time.
func TestPublisher_of_a_unique_key_waits_for_the_transaction_that_has_it(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "warm up", newMessage("0", "")) // registers the outbox
		for _, c := range []struct {
			name, before    string // whether the key had a message before
			commits         bool
			skipped, stored []string // of the second transaction, and in the end
		}{
			{"committed", "", true, []string{"2"}, []string{"1"}},
			{"rolled back", "", false, nil, []string{"2"}},
			{"committed after one that is done", "done", true, []string{"2"}, []string{"1"}},
			{"rolled back after one that is done", "done", false, nil, []string{"2"}},
			{"skipped", "waits", true, []string{"2"}, []string{"0"}}, // it has only locked the key
		} {
			if c.before != "" {
				publishUnique(t, database, publisher, c.name, skipping("0", "key"))
			}
			if c.before == "done" {
				database.Exec(t, "DELETE FROM postbox_messages")
			}
			first, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			require.NoError(t, err)
			require.NoError(t, publisher.Bind(first).Publish(c.name, skipping("1", "key")))
			ended := make(chan error, 1)
			var skipped []string
			go func() {
				var err error
				skipped, err = tryUnique(context.Background(), database, publisher, c.name, skipping("2", "key"))
				ended <- err
			}()
			eventually(t, func() bool { return waitsForLock(t, database) }, "the second transaction waits")
			end := first.Rollback
			if c.commits {
				end = first.Commit
			}
			require.NoError(t, end())
			require.NoError(t, <-ended)
			require.Equal(t, c.skipped, skipped, c.name)
			require.Equal(t, c.stored, stored(t, database, c.name), c.name)
		}
	})
}

// waitsForLock reports whether a session of the database waits for a lock of another one.
func waitsForLock(t *testing.T, database *testdb.Database) bool {
	t.Helper()
	if database.Dialect == postbox.PostgreSQL {
		return database.Count(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%unique_keys%' AND pid IN "+
			"(SELECT l.pid FROM pg_locks l WHERE l.relation = 'postbox_unique_keys'::regclass)") > 0
	}
	if database.Count(t, "SELECT VERSION() NOT LIKE '%MariaDB%'") > 0 { // MySQL 9 cannot show statements with bytes in its list of processes
		return database.Count(t, "SELECT COUNT(*) FROM performance_schema.data_locks WHERE LOCK_STATUS = 'WAITING' AND OBJECT_SCHEMA = DATABASE() AND OBJECT_NAME = 'postbox_unique_keys'") > 0
	}
	return database.Count(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE 'INSERT INTO postbox_unique_keys%'") > 0
}

// A producer on PostgreSQL that waits for a change of the message finds it after that. If the
// message has failed, it stays.
func TestPublisher_replaces_a_message_that_changes_meanwhile(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	for topic, test := range map[string]struct {
		change []string
		want   []string
	}{
		"started": {[]string{"UPDATE ONLY postbox_messages SET starts = 1"}, []string{"new"}},
		"failed": {[]string{
			"UPDATE ONLY postbox_messages SET state = 2",
			"WITH m AS (DELETE FROM ONLY postbox_messages RETURNING *) INSERT INTO postbox_waiting SELECT * FROM m",
		}, []string{"old", "new"}},
	} {
		publishUnique(t, database, publisher, topic, replacing("old", "key"))
		drainer, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		for _, statement := range test.change {
			_, err = drainer.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := tryUnique(context.Background(), database, publisher, topic, replacing("new", "key"))
			ended <- err
		}()
		eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM pg_locks l JOIN pg_locks r USING (pid) WHERE NOT l.granted AND r.relation = 'postbox_unique_keys'::regclass") > 0
		}, "the producer waits for the drainer")
		require.NoError(t, drainer.Commit())
		require.NoError(t, <-ended)
		require.Equal(t, test.want, stored(t, database, topic))
		database.Exec(t, "DELETE FROM postbox_messages")
	}
}

// Under REPEATABLE READ the snapshot of the transaction counts, and producers of different keys do
// not wait for each other.
func TestPublisher_of_unique_keys_under_repeatable_read(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		for _, key := range []string{"a", "b"} { // their messages are done
			publishUnique(t, database, publisher, "topic", replacing(key, key))
		}
		database.Exec(t, "DELETE FROM postbox_messages")
		begin := func() *sql.Tx {
			tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			var n int
			require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n)) // takes the snapshot
			return tx
		}
		a, b, late := begin(), begin(), begin()
		for key, tx := range map[string]*sql.Tx{"a": a, "b": b} {
			require.NoError(t, publisher.Bind(tx).Publish("topic", replacing("next "+key, key)))
		}
		inTx(t, database.DB, publisher, "topic", newMessage("beside", ""))
		require.NoError(t, a.Commit())
		require.NoError(t, b.Commit())

		err := publisher.Bind(late).Publish("topic", replacing("late", "a"))
		if database.Dialect == postbox.PostgreSQL {
			require.Equal(t, dialect.Conflict, dialect.PostgreSQL.Classify(err), "the transaction must run again: %v", err)
			return
		}
		require.NoError(t, err)
		require.NoError(t, late.Commit())
		require.ElementsMatch(t, []string{"late", "next b", "beside"}, stored(t, database, "topic"), "a newer message than the snapshot is found")
	})
}

// The message has been published since the snapshot. The search for it must not lock the end of the
// table.
func TestPublisher_that_replaces_a_message_of_its_snapshot_holds_up_no_other(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	publishUnique(t, database, publisher, "topic", replacing("old", "a"))
	tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var n int
	require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n)) // takes the snapshot
	database.Exec(t, "DELETE FROM postbox_messages")
	require.NoError(t, publisher.Bind(tx).Publish("topic", replacing("new", "a")))
	inTx(t, database.DB, publisher, "topic", newMessage("beside", ""))
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"new", "beside"}, stored(t, database, "topic"))
}

// A transaction with a snapshot does not skip a message for one that a forwarder has published and
// removed since.
func TestPublisher_G2_skips_no_message_for_one_that_was_removed_since_the_snapshot(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	publisher := publisherFor(t, database, nil)
	for _, isolation := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		topic := isolation.String()
		require.Empty(t, publishUnique(t, database, publisher, topic, skipping("done", "a"), skipping("waits", "b")))
		tx, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: isolation})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		var n int
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&n)) // takes the snapshot
		database.Exec(t, "DELETE FROM postbox_messages WHERE message_id = 'done'")

		require.NoError(t, publisher.Bind(tx).Publish(topic, skipping("next", "a"), skipping("skipped", "b")))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = database.DB.ExecContext(ctx, "DELETE FROM postbox_messages WHERE message_id = 'waits'")
		require.NoError(t, err, "a forwarder can remove the message for which another one was skipped")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"next"}, stored(t, database, topic))
	}
}

// Others store and replace messages while a transaction that has replaced one is open.
func TestPublisher_locks_only_the_message_that_it_replaces(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		require.Empty(t, publishUnique(t, database, publisher, "topic", skipping("1", "a")))
		if database.Dialect == postbox.MySQL { // with few rows it may choose any index
			database.Exec(t, "ANALYZE TABLE postbox_messages")
		}
		tx, err := database.Open(t).BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, publisher.Bind(tx).Publish("topic", replacing("3", "a")))

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = tryUnique(ctx, database, publisher, "topic", replacing("4", "b"), skipping("5", "c"), newMessage("after", ""))
		require.NoError(t, err, "it waits for no lock")
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"3", "4", "5", "after"}, stored(t, database, "topic"))
	})
}

// What was published last under a key is what was committed last, whatever the forwarder has in
// memory meanwhile and whatever fails.
func TestForwarder_G2_loses_no_committed_change_of_messages_that_replace_each_other(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const keys, producers, rounds = 3, 3, 12
		database.Exec(t, "CREATE TABLE states (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)")
		for key := range keys {
			database.Exec(t, "INSERT INTO states VALUES (?, 0)", key)
		}
		calls, latest := 0, map[string]string{} // the broker has a lock of its own
		var mu sync.Mutex
		to := &broker{fail: func(_ string, msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%4 == 0 {
				return errBroker
			}
			latest[msg.Metadata.Get(postbox.MetadataOrderingKey)] = string(msg.Payload)
			return nil
		}}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
			c.Classify = func(error) postbox.ErrorClass { return postbox.MessageFault }
			c.Retry.Attempts = -1
		}))
		publisher := publisherFor(t, database, nil)
		change := func(ctx context.Context, tx *sql.Tx, key int, rollBack bool) error {
			if _, err := tx.ExecContext(ctx, database.Bind("UPDATE states SET version = version + 1 WHERE id = ?"), key); err != nil {
				return err
			}
			var version string
			if err := tx.QueryRowContext(ctx, database.Bind("SELECT version FROM states WHERE id = ?"), key).Scan(&version); err != nil {
				return err
			}
			msg := message.NewMessage(watermill.NewUUID(), []byte(version))
			msg.SetContext(ctx)
			if err := publisher.Publish("states", postbox.ReplaceWaiting(msg, fmt.Sprint(key))); err != nil || !rollBack {
				return err
			}
			return errRollBack
		}
		var producing sync.WaitGroup
		for producer := range producers {
			producing.Go(func() {
				for round := range rounds {
					err := postbox.InTx(context.Background(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
						return change(ctx, tx, (producer+round)%keys, round%5 == 4)
					})
					assert.True(t, err == nil || errors.Is(err, errRollBack) || dialect.Kind(database.Dialect).Classify(err) == dialect.Conflict, "%v", err)
				}
			})
		}
		producing.Wait()
		eventually(t, func() bool { return pending(t, database) == 0 }, "everything is published")
		for key := range keys {
			version := database.Count(t, "SELECT version FROM states WHERE id = ?", key)
			require.Positive(t, version)
			require.Equal(t, fmt.Sprint(version), latest[fmt.Sprint(key)])
		}
		require.Zero(t, dead(t, database))
	})
}

var errRollBack = errors.New("the producer rolls back")
