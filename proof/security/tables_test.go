package security_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The SQL of these tests: a table of the user's, and what roles may and may not do.
const (
	createOrders = `CREATE TABLE orders (id VARCHAR(255) PRIMARY KEY)`
	insertOrder  = `INSERT INTO orders (id) VALUES (?)`
	intrude      = `INSERT INTO orders (id) VALUES ('intruder')`
	countOrders  = `SELECT COUNT(*) FROM orders`

	listTablesPostgres = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema()`
	listTablesMySQL    = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()`
	listTablesSQLite   = `SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'`

	readMessages    = `SELECT payload FROM postbox_messages`
	readTopics      = `SELECT topic FROM postbox_messages`
	changeMessages  = `UPDATE postbox_messages SET attempts = 0`
	deleteMessages  = `DELETE FROM postbox_messages`
	readClaims      = `SELECT claim_key FROM postbox_claims`
	readReceipts    = `SELECT topic FROM postbox_receipts`
	changeReceipts  = `UPDATE postbox_receipts SET state = 0`
	awaitedReceipts = `SELECT COUNT(*) FROM postbox_receipts WHERE state = 0`
	deleteClaims    = `DELETE FROM postbox_claims`
	readDead        = `SELECT payload FROM postbox_dead_letters`
	readFailures    = `SELECT error FROM postbox_failures`
	readHistory     = `SELECT payload FROM postbox_history`
	pauseSpools     = `UPDATE postbox_spools SET paused_at = 1`
	addSpool        = `INSERT INTO postbox_spools (name) VALUES ('mine')`
	stealLanes      = `UPDATE postbox_lanes SET token = 0`
	readLanes       = `SELECT holder FROM postbox_lanes`
	deleteOrders    = `DELETE FROM orders`
	pauseOthers     = `DELETE FROM postbox_pauses`
	stealVersion    = `SELECT version_id FROM postbox_version`
	changeVersion   = `DELETE FROM postbox_version`
	changeAudit     = `UPDATE postbox_audit SET actor = 'another'`
	deleteAudit     = `DELETE FROM postbox_audit`
	createTable     = `CREATE TABLE mine (id INTEGER)`
	dropTable       = `DROP TABLE postbox_messages`
	breakMetadata   = `UPDATE postbox_messages SET metadata = ?`
	failedMessage   = `SELECT COUNT(*) FROM postbox_dead_letters`
	oldMessages     = `SELECT COUNT(*) FROM watermill_events`
	storedMessages  = `SELECT COUNT(*) FROM postbox_messages`
	errorsOfLetters = `SELECT error FROM postbox_dead_letters UNION ALL SELECT error FROM postbox_failures`
)

func listTables(database *testdb.Database) string {
	switch database.Driver {
	case "mysql":
		return listTablesMySQL
	case "sqlite":
		return listTablesSQLite
	default:
		return listTablesPostgres
	}
}

// newOldTable makes the tables of watermill-sql for the topic events, and returns an old producer.
func newOldTable(t *testing.T, database *testdb.Database) *wmsql.Publisher {
	t.Helper()
	var schema wmsql.SchemaAdapter = wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }}
	var offsets wmsql.OffsetsAdapter = wmsql.DefaultPostgreSQLOffsetsAdapter{}
	if database.Dialect == postbox.MySQL {
		schema = wmsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "LONGBLOB" }}
		offsets = wmsql.DefaultMySQLOffsetsAdapter{}
	}
	for _, query := range append(schema.SchemaInitializingQueries("events"), offsets.SchemaInitializingQueries("events")...) {
		database.Exec(t, query.Query, query.Args...)
	}
	old, err := wmsql.NewPublisher(database.DB, wmsql.PublisherConfig{SchemaAdapter: schema}, nil)
	require.NoError(t, err)
	return old
}
