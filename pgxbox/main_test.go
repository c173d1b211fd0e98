package pgxbox_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/pgxbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = time.Minute

// service is a service that has a pool and nothing else.
type service struct {
	*testdb.Database // a handle of the test's own

	t        *testing.T
	pool     *pgxpool.Pool
	database postbox.Database
}

// each runs a test directly and through PgBouncer in transaction mode.
func each(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, connections int32) *service{"direct": newService, "pgbouncer": newPooledService} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, 8))
		})
	}
}

// eachAlone runs a test that ends sessions, with no other one beside it: those of PgBouncer belong
// to all of its clients.
func eachAlone(t *testing.T, test func(t *testing.T, s *service)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T, connections int32) *service{"direct": newService, "pgbouncer": newPooledService} {
		t.Run(name, func(t *testing.T) { test(t, open(t, 8)) })
	}
}

func newService(t *testing.T, connections int32) *service {
	t.Helper()
	s := &service{t: t, Database: testdb.Postgres(t)}
	return s.open(s.DSN, connections)
}

// newPooledService has a pool as docs/poolers.md says.
func newPooledService(t *testing.T, connections int32) *service {
	t.Helper()
	s := &service{t: t, Database: testdb.Postgres(t)}
	return s.open(testservice.Address(t, testservice.PgBouncerVariable)+"&default_query_exec_mode=exec", connections)
}

func (s *service) open(dsn string, connections int32) *service {
	s.t.Helper()
	s.Exec(s.t, "CREATE TABLE effects (id TEXT NOT NULL, n INT NOT NULL, tags TEXT[] NOT NULL DEFAULT '{}')")
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(s.t, err)
	config.MaxConns = connections
	config.ConnConfig.RuntimeParams["application_name"] = s.schema()
	s.pool, err = pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(s.pool.Close)
	s.database = pgxbox.Database(s.pool)
	s.database.Schema = s.schema()
	s.t.Cleanup(func() { require.NoError(s.t, s.database.DB.Close()) })
	require.NoError(s.t, postbox.Migrate(s.t.Context(), s.database))
	return s
}

// schema is the one of the test: PgBouncer refuses a search_path.
func (s *service) schema() string {
	s.t.Helper()
	address, err := url.Parse(s.DSN)
	require.NoError(s.t, err)
	return address.Query().Get("search_path")
}

func (s *service) table() pgx.Identifier { return pgx.Identifier{s.schema(), "effects"} }

// insert is the statement that writes an effect.
func (s *service) insert() string {
	return fmt.Sprintf("INSERT INTO %s VALUES ($1, $2, $3)", s.table().Sanitize())
}

// effect writes in three ways in the transaction of the context.
func (s *service) effect(ctx context.Context, id string) error {
	tx, found := pgxbox.TxFromContext(ctx)
	if !found {
		return postbox.ErrNoTransaction
	}
	return s.write(ctx, tx, id)
}

// ways is the number of rows that an effect has.
const ways = 4

func (s *service) write(ctx context.Context, tx pgx.Tx, id string) error {
	if _, err := tx.Exec(ctx, s.insert(), id, 0, []string{"exec"}); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(s.insert(), id, 1, []string{"batch", "one"})
	batch.Queue(s.insert(), id, 2, []string{"batch", "two"})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	_, err := tx.CopyFrom(ctx, s.table(), []string{"id", "n", "tags"}, pgx.CopyFromRows([][]any{{id, 3, []string{"copy"}}}))
	return err
}

// wrote fails the test unless each of these ids has had its effect once, and nothing else.
func (s *service) wrote(ids ...string) {
	s.t.Helper()
	require.Equal(s.t, ways*len(ids), s.Count(s.t, "SELECT COUNT(*) FROM effects"))
	require.Equal(s.t, ways*len(ids), s.Count(s.t, "SELECT COUNT(*) FROM (SELECT DISTINCT id, n FROM effects) e"))
	for _, id := range ids {
		require.Equal(s.t, ways, s.Count(s.t, "SELECT COUNT(*) FROM effects WHERE id = ?", id), id)
	}
}

func (s *service) publisher() *forwarder.Publisher {
	s.t.Helper()
	publisher, err := forwarder.NewPublisher(s.database, forwarder.PublisherConfig{}, nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, publisher.Close()) })
	return publisher
}

func (s *service) store() *inboxstore.Store {
	s.t.Helper()
	store, err := inboxstore.New(s.database, inboxstore.Config{}, nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	return store
}

// pending counts the messages of an outbox or a queue.
func (s *service) pending() int {
	s.t.Helper()
	return s.Count(s.t, "SELECT COUNT(*) FROM postbox_messages")
}

func (s *service) eventually(condition func() bool, what string) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, testdb.PollPause, what)
}

func published(ctx context.Context, publisher message.Publisher, id string) error {
	msg := message.NewMessage(id, []byte("{}"))
	msg.SetContext(ctx)
	return publisher.Publish("orders", msg)
}
