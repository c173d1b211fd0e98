package sources

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/takeover"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const transferPatience = 60 * time.Second

// oldWorld is a database with an outbox of watermill-sql and one of Postbox.
type oldWorld struct {
	t          *testing.T
	database   *testdb.Database
	statements *dialect.Statements
	schema     wmsql.SchemaAdapter
	offsets    wmsql.OffsetsAdapter
	source     watermillSQL
}

// eachOldWorld runs the test on every database that watermill-sql v3 has a schema for.
func eachOldWorld(t *testing.T, test func(w *oldWorld)) {
	t.Helper()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { test(newOldWorld(t, database)) })
}

// newOldWorld makes the tables of both.
func newOldWorld(t *testing.T, database *testdb.Database) *oldWorld {
	t.Helper()
	w := &oldWorld{t: t, database: database.Migrate(t), source: watermillSQL{Topic: "events", PollMin: time.Millisecond, PollMax: 20 * time.Millisecond}}
	binary := func(string) string { return "BYTEA" }
	if database.Dialect == postbox.MySQL {
		binary = func(string) string { return "LONGBLOB" }
	}
	w.useSchema(binary)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	w.statements = statements
	return w
}

func (w *oldWorld) useSchema(payload func(string) string) {
	if w.database.Dialect == postbox.MySQL {
		w.schema, w.offsets = wmsql.DefaultMySQLSchema{GeneratePayloadType: payload}, wmsql.DefaultMySQLOffsetsAdapter{}
		return
	}
	w.schema, w.offsets = wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: payload}, wmsql.DefaultPostgreSQLOffsetsAdapter{}
}

// initialize makes the old tables; watermill-sql itself fails when two processes do it at once.
func (w *oldWorld) initialize() *oldWorld {
	w.t.Helper()
	for _, query := range append(w.schema.SchemaInitializingQueries(w.source.Topic), w.offsets.SchemaInitializingQueries(w.source.Topic)...) {
		w.database.Exec(w.t, query.Query, query.Args...)
	}
	return w
}

// publisher returns an old producer on a *sql.DB or a *sql.Tx.
func (w *oldWorld) publisher(db wmsql.ContextExecutor) *wmsql.Publisher {
	w.t.Helper()
	_, inTx := db.(*sql.Tx)
	publisher, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: w.schema, AutoInitializeSchema: !inTx}, nil)
	require.NoError(w.t, err)
	return publisher
}

// publish writes messages with these ids as an old producer does.
func (w *oldWorld) publish(db wmsql.ContextExecutor, ids ...string) {
	w.t.Helper()
	require.NoError(w.t, w.publisher(db).Publish(w.source.Topic, oldMessages(ids...)...))
}

func oldMessages(ids ...string) []*message.Message {
	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = message.NewMessage(id, []byte(`{"id": "`+id+`"}`))
		messages[i].Metadata.Set("id", id)
	}
	return messages
}

func ids(prefix string, from, to int) []string {
	list := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("%s%05d", prefix, i))
	}
	return list
}

// transfer returns a transfer as a process of its own has it: with its handle, spool and memory.
func (w *oldWorld) transfer(db *sql.DB, logger watermill.LoggerAdapter) *transfer {
	w.t.Helper()
	source := w.source
	source.setDefaults(w.database.Dialect)
	require.NoError(w.t, source.validate(w.database.Dialect))
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	transfer := newTransfer(takeover.Outbox{DB: db, Statements: w.statements, Spool: spool.New(w.statements, spool.DefaultOutbox), Logger: logger}, source)
	w.t.Cleanup(transfer.announcer.Close)
	return transfer
}

// step looks once, and returns how many messages came over.
func (w *oldWorld) step(transfer *transfer) int {
	w.t.Helper()
	before := w.pending()
	transfer.step(w.t.Context())
	return w.pending() - before
}

// start runs a transfer until the test ends.
func (w *oldWorld) start(transfer *transfer) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { transfer.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

func (w *oldWorld) eventually(condition func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, condition, transferPatience, testdb.PollPause, what)
}

func (w *oldWorld) pending() int {
	w.t.Helper()
	return w.database.Count(w.t, "SELECT COUNT(*) FROM postbox_messages")
}

func (w *oldWorld) dead() int {
	w.t.Helper()
	return w.database.Count(w.t, "SELECT COUNT(*) FROM postbox_dead_letters")
}

func (w *oldWorld) left() int {
	w.t.Helper()
	return w.database.Count(w.t, "SELECT COUNT(*) FROM "+w.schemaTable())
}

func (w *oldWorld) schemaTable() string {
	table, _ := defaultTables(w.database.Dialect, w.source.Topic)
	return table
}

func (w *oldWorld) offsetsTable() string {
	_, table := defaultTables(w.database.Dialect, w.source.Topic)
	return table
}

// moved is a message that came over.
type moved struct {
	topic, id, key, payload string
	metadata                map[string]string
}

// moved returns what came over, in the order in which a drain of one key handles it.
func (w *oldWorld) moved() []moved {
	w.t.Helper()
	rows, err := w.database.DB.QueryContext(w.t.Context(),
		"SELECT topic, message_id, COALESCE(ordering_key, ''), payload, metadata FROM postbox_messages ORDER BY id")
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, rows.Close()) }()
	var list []moved
	for rows.Next() {
		var m moved
		var id, key, payload, metadata []byte
		require.NoError(w.t, rows.Scan(&m.topic, &id, &key, &payload, &metadata))
		require.NoError(w.t, json.Unmarshal(metadata, &m.metadata))
		m.id, m.key, m.payload = string(id), string(key), string(payload)
		list = append(list, m)
	}
	require.NoError(w.t, rows.Err())
	return list
}

func (w *oldWorld) movedIDs() []string {
	w.t.Helper()
	var list []string
	for _, m := range w.moved() {
		list = append(list, m.id)
	}
	return list
}

// begin opens a transaction that ends with the test at the latest.
func (w *oldWorld) begin(db *sql.DB) *sql.Tx {
	w.t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *oldWorld) errors(logger *watermill.CaptureLoggerAdapter) []watermill.CapturedMessage {
	return logger.Captured()[watermill.ErrorLogLevel]
}
