package forwarder_test

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// It said for ever that it could not reach its database.
func TestForwarder_refuses_the_wrong_dialect_and_names_the_right_one(t *testing.T) {
	t.Parallel()
	names := map[postbox.Dialect]string{postbox.PostgreSQL: "PostgreSQL", postbox.MySQL: "MySQL", postbox.SQLite: "SQLite"}
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		want := "set Dialect to postbox." + names[database.Dialect]
		for dialect := range names {
			if dialect == database.Dialect {
				continue
			}
			_, err := forwarder.New(database.DB, &broker{}, forwarder.Config{Dialect: dialect}, nil)
			require.ErrorContains(t, err, want)
			_, err = forwarder.NewPublisher(database.DB, forwarder.PublisherConfig{Dialect: dialect}, nil)
			require.ErrorContains(t, err, want)

			fwd, err := forwarder.New(database.OpenWrapped(t), &broker{}, forwarder.Config{Dialect: dialect}, nil)
			require.NoError(t, err, "the driver is not known")
			require.ErrorContains(t, runBriefly(t, fwd), want)
		}
	})
}

// runBriefly returns what Run does, and ends it after a while.
func runBriefly(t *testing.T, fwd *forwarder.Forwarder) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return fwd.Run(ctx)
}

// Its reads begin no transaction, so they have the level of the session. It published messages of transactions that were rolled back later.
func TestForwarder_G1_refuses_sessions_that_read_what_may_be_rolled_back(t *testing.T) {
	t.Parallel()
	refusesSessions(t, "tx_isolation=%27READ-UNCOMMITTED%27", "READ UNCOMMITTED", "SET SESSION TRANSACTION ISOLATION LEVEL ", "READ UNCOMMITTED", "REPEATABLE READ")
}

// A statement by itself was never committed, and its locks kept messages from being removed.
func TestForwarder_G2_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	refusesSessions(t, "autocommit=0", "autocommit = 0", "SET SESSION autocommit = ", "0", "1")
}

// refusesSessions wants an error at the start, and a line in the log where a session is changed while the forwarder runs, which publishes nothing until it
// is changed back.
func refusesSessions(t *testing.T, options, want, change, wrong, right string) {
	t.Helper()
	database := testdb.MySQL(t).Migrate(t)
	to := &broker{}
	fwd, err := forwarder.New(database.OpenWith(t, options), to, forwarder.Config{Dialect: postbox.MySQL, Lanes: 8}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, runBriefly(t, fwd), want)

	logger := &errorLog{text: want}
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	config := forwarder.Config{Dialect: postbox.MySQL, Lanes: 8, PollMin: time.Millisecond, PollMax: 50 * time.Millisecond}
	fwd, err = forwarder.New(db, to, config, logger)
	require.NoError(t, err)
	run(t, fwd)
	<-fwd.Running()
	set := func(value string) {
		_, err := db.ExecContext(t.Context(), change+value)
		require.NoError(t, err)
	}
	set(wrong)
	eventually(t, func() bool { return logger.found.Load() > 0 }, "a line in the log")

	publisher := publisherFor(t, database, nil)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Bind(tx).Publish("orders", newMessage("rolled back", "")))
	look(t, db)
	require.NoError(t, tx.Rollback())
	inTx(t, database.DB, publisher, "orders", newMessage("committed", ""))
	require.EqualValues(t, 1, logger.found.Load(), "it is said once")
	set(right)
	eventually(t, func() bool { return pending(t, database) == 0 }, "removed")
	require.Equal(t, []string{"committed"}, to.ids())
}

// look waits until the forwarder has used its only connection some times more.
func look(t *testing.T, db *sql.DB) {
	t.Helper()
	for until := db.Stats().WaitCount + 5; db.Stats().WaitCount < until; { // the forwarder waits for the connection that is held here
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		waits := db.Stats().WaitCount
		require.Eventually(t, func() bool { return db.Stats().WaitCount > waits }, 10*time.Second, time.Millisecond)
		require.NoError(t, conn.Close())
	}
}

// errorLog counts the errors that contain a text.
type errorLog struct {
	watermill.NopLogger
	text  string
	found atomic.Int32
}

// Error counts it.
func (l *errorLog) Error(_ string, err error, _ watermill.LogFields) {
	if strings.Contains(err.Error(), l.text) {
		l.found.Add(1)
	}
}

// With returns the same log.
func (l *errorLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

// Each session takes so many ids in advance, so a message that is written later may have a lower one, and overtake.
func TestForwarder_G3_refuses_a_sequence_that_gives_ids_in_advance(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 20")
	fwd, err := forwarder.New(database.DB, &broker{}, forwarder.Config{Dialect: postbox.PostgreSQL, Lanes: 8}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, runBriefly(t, fwd), "ALTER SEQUENCE postbox_messages_id_seq CACHE 1")
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 1")
	fwd = forwarderFor(t, database, &broker{}, nil)
	run(t, fwd)
	<-fwd.Running()
}
