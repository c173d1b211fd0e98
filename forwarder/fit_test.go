package forwarder_test

import (
	"context"
	"database/sql"
	"runtime"
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
			_, err := forwarder.New(postbox.Database{DB: database.DB, Dialect: dialect}, &broker{}, forwarder.Config{}, nil)
			require.ErrorContains(t, err, want)
			_, err = forwarder.NewPublisher(postbox.Database{DB: database.DB, Dialect: dialect}, forwarder.PublisherConfig{}, nil)
			require.ErrorContains(t, err, want)

			fwd, err := forwarder.New(postbox.Database{DB: database.OpenWrapped(t), Dialect: dialect}, &broker{}, forwarder.Config{}, nil)
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

// Its reads begin no transaction, so they have the level of the session. It published messages of
// transactions that were rolled back later.
func TestForwarder_G1_refuses_sessions_that_read_what_may_be_rolled_back(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	refusesSessions(t, database, database.IsolationVariable(t)+"=%27READ-UNCOMMITTED%27", "READ UNCOMMITTED", "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
}

// A statement by itself was never committed, and its locks kept messages from being removed.
func TestForwarder_G2_refuses_sessions_that_do_not_commit_by_themselves(t *testing.T) {
	t.Parallel()
	refusesSessions(t, testdb.MySQL(t), "autocommit=0", "autocommit = 0", "SET SESSION autocommit = 0")
}

// refusesSessions wants an error at the start, and a line in the log where a session is changed
// while the forwarder runs, which publishes nothing that it reads in this session, closes it, and
// goes on in another one.
func refusesSessions(t *testing.T, database *testdb.Database, options, want, change string) {
	t.Helper()
	database.Migrate(t)
	to := &broker{}
	fwd, err := forwarder.New(postbox.Database{DB: database.OpenWith(t, options), Dialect: postbox.MySQL}, to, forwarder.Config{}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, runBriefly(t, fwd), want)

	logger := &errorLog{text: want}
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	config := forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond}}
	fwd, err = forwarder.New(database.On(db), to, config, logger)
	require.NoError(t, err)
	run(t, fwd)
	<-fwd.Running()
	publisher := publisherFor(t, database, nil)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Bind(tx).Publish("orders", newMessage("rolled back", "")))
	_, err = db.ExecContext(t.Context(), change)
	require.NoError(t, err)
	eventually(t, func() bool { return logger.found.Load() > 0 }, "a line in the log")
	look(t, db)
	require.NoError(t, tx.Rollback())
	inTx(t, database.DB, publisher, "orders", newMessage("committed", ""))
	require.EqualValues(t, 1, logger.found.Load(), "it is said once")
	eventually(t, func() bool { return pending(t, database) == 0 }, "removed in another session")
	require.Equal(t, []string{"committed"}, to.ids())
}

// A pool hands out the connection that was freed last, so it gave each read the one that a function
// of the user had set, although others were right.
func TestForwarder_G1_goes_on_beside_one_session_that_cannot_be_used(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"READ UNCOMMITTED": "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
		"autocommit = 0":   "SET SESSION autocommit = 0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.MySQL(t).Migrate(t)
			db := database.Open(t)
			spoil := func() { // and frees it after another one
				t.Helper()
				right, err := db.Conn(t.Context())
				require.NoError(t, err)
				wrong, err := db.Conn(t.Context())
				require.NoError(t, err)
				_, err = wrong.ExecContext(t.Context(), change)
				require.NoError(t, err)
				require.NoError(t, right.Close())
				require.NoError(t, wrong.Close())
			}
			spoil()
			require.Equal(t, 2, db.Stats().Idle)
			to := &broker{}
			config := forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond}}
			fwd, err := forwarder.New(database.On(db), to, config, nil)
			require.NoError(t, err)
			run(t, fwd) // which fails the test if it ends with an error
			publisher := publisherFor(t, database, nil)
			inTx(t, database.DB, publisher, "orders", newMessage("at the start", ""))
			eventually(t, func() bool { return len(to.ids()) == 1 }, "it starts, and publishes")

			spoil()
			inTx(t, database.DB, publisher, "orders", newMessage("later", ""))
			eventually(t, func() bool { return len(to.ids()) == 2 && pending(t, database) == 0 }, "it goes on, and removes")
		})
	}
}

// look waits until the forwarder has wanted its only connection some times more. Where it already
// waits when the connection is taken here, nothing shows that, so each time is short and the next
// one tells.
func look(t *testing.T, db *sql.DB) {
	t.Helper()
	wanted := 0
	eventually(t, func() bool {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		waits := db.Stats().WaitCount
		for end := time.Now().Add(100 * time.Millisecond); db.Stats().WaitCount == waits && time.Now().Before(end); {
			runtime.Gosched()
		}
		if db.Stats().WaitCount > waits {
			wanted++
		}
		require.NoError(t, conn.Close())
		return wanted >= 5
	}, "the forwarder wants its connection")
}

// It said for ever that it could not reach its database: "sql: driver does not support non-default
// isolation level".
func TestForwarder_refuses_a_driver_that_hides_the_BeginTx_of_another_one(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		fwd, err := forwarder.New(database.On(database.OpenUnknown(t)), &broker{}, forwarder.Config{}, nil)
		require.NoError(t, err)
		err = runBriefly(t, fwd)
		require.ErrorContains(t, err, "hides BeginTx")
		require.ErrorContains(t, err, "let it implement what the driver inside implements")
	})
}

func TestForwarder_accepts_an_unknown_driver(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	db := database.OpenUnknown(t)
	require.NoError(t, postbox.Migrate(t.Context(), postbox.Database{DB: db, Dialect: postbox.SQLite}))
	to := &broker{}
	fwd, err := forwarder.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, to, forwarder.Config{}, nil)
	require.NoError(t, err)
	publisher, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: postbox.SQLite}, forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	run(t, fwd)
	inTx(t, db, publisher, "topic", newMessage("a", ""))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "it is published")
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

// Each session takes so many ids in advance, so a message that is written later may have a lower
// one, and overtake.
func TestForwarder_G3_refuses_a_sequence_that_gives_ids_in_advance(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 20")
	fwd, err := forwarder.New(postbox.Database{DB: database.DB, Dialect: postbox.PostgreSQL}, &broker{}, forwarder.Config{}, nil)
	require.NoError(t, err)
	err = runBriefly(t, fwd)
	require.ErrorContains(t, err, "ALTER SEQUENCE postbox_messages_id_seq CACHE 1, then restart all producers")
	require.ErrorContains(t, err, "start forwarders and queues only after that")
	database.Exec(t, "ALTER SEQUENCE postbox_messages_id_seq CACHE 1")
	fwd = forwarderFor(t, database, &broker{}, nil)
	run(t, fwd)
	<-fwd.Running()
}
