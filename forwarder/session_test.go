package forwarder_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// publishIn publishes messages in a transaction of the database of the test.
func publishIn(t *testing.T, database *testdb.Database, topic string, ids ...string) {
	t.Helper()
	publisher := publisherFor(t, database, nil)
	require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
		for _, id := range ids {
			msg := message.NewMessage(id, nil)
			msg.SetContext(ctx)
			if err := publisher.Publish(topic, msg); err != nil {
				return err
			}
		}
		return nil
	}))
}

// moving is the name of a server that leads to a standby at first: what connects meanwhile stays
// connected to it.
type moving struct {
	through driver.Driver
	dsn     string
	standby atomic.Bool
	opened  atomic.Int64 // connections to the standby
	session string       // makes a session one of the standby
}

func (m *moving) Driver() driver.Driver { return m.through }

func (m *moving) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.through.Open(m.dsn)
	if err != nil || !m.standby.Load() {
		return conn, err
	}
	m.opened.Add(1)
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, m.session, nil) //nolint:forcetypeassert // all drivers have it
	return conn, err
}

// The pool was filled while the name of the primary led to a standby. Its connections answer for
// ever, and cannot write.
func TestForwarder_G7_gives_up_connections_that_cannot_write(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publishIn(t, database, "orders", "one")
		m := &moving{through: database.DB.Driver(), dsn: database.DSN, session: "SET default_transaction_read_only = on"}
		if database.Dialect == postbox.MySQL {
			m.session = "SET SESSION TRANSACTION READ ONLY"
		}
		m.standby.Store(true)
		db := sql.OpenDB(m)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		to := &broker{}
		f, err := forwarder.New(database.On(db), to, forwarder.Config{}, watermill.NopLogger{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			require.NoError(t, <-ended)
		})
		require.Eventually(t, func() bool { return m.opened.Load() > 0 }, patience, testdb.PollPause)
		m.standby.Store(false)
		require.Eventually(t, func() bool { return len(to.ids()) == 1 }, patience, testdb.PollPause)
	})
}

// A database that was made with the default of old servers has no Cyrillic letters. Limits of
// topics are told to other processes with each heartbeat.
func TestForwarder_works_whatever_the_character_set_of_the_database_is(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	database.Exec(t, "ALTER DATABASE CHARACTER SET latin1")
	require.NoError(t, postbox.Migrate(t.Context(), database.Postbox()))
	publishIn(t, database, "заказы 📮", "one")
	to := &broker{}
	f, err := forwarder.New(database.Postbox(), to, forwarder.Config{
		Limits: postbox.Limits{Topics: map[string]postbox.Limit{"заказы 📮": {PerSecond: 1000}}},
	}, watermill.NopLogger{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	require.Eventually(t, func() bool { return len(to.ids()) == 1 }, patience, testdb.PollPause)
	cancel()
	require.NoError(t, <-ended)
}
