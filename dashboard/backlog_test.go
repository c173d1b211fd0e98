package dashboard_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// backlogPart is the number of rows that one statement writes.
	backlogPart = 100_000
	// backlogRows is the variable with the length of a [longBacklog], a multiple of backlogPart,
	// which is the default.
	backlogRows  = "POSTBOX_BENCH_ROWS"
	backlogLanes = 16
)

// digits is a table of the numbers below backlogPart, as n.
const digits = `
WITH d (n) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6
	UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
r (n) AS (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f)`

// The statements of a part: messages of a state in all lanes, three failures of each that has
// failed, dead letters, and rows of the audit log.
const (
	fillMessages = `
INSERT INTO {table} (available_at, created_at, spool, state, lane, attempts, key_hash, ordering_key, topic, message_id, payload, metadata)` + digits + `
SELECT ?, ?, ?, ?, r.n % 16, ?, r.n, {key}, 'orders', 'an id of a message', '{"order":4711}', '{}' FROM r WHERE r.n < ?`

	fillFailures = `
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
SELECT {subject}, a.n, ?, {error}, 'host 42'
FROM {table} m CROSS JOIN (SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT 3) a
WHERE m.state = 2`

	fillLetters = `
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, ordering_key, key_hash, payload, metadata, created_at, died_at, attempts, error)` + digits + `
SELECT 0, {key}, ?, '', 'orders', 'an id of a message', {key}, r.n, '{"order":4711}', '{}', ?, ?, 5, {error} FROM r`

	fillAudit = `
INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)` + digits + `
SELECT {text}, ?, 'anna', 'requeue', 'outbox', 'dead letter 7', '', 1, '' FROM r`
)

// longBacklog is a database with very many messages, for measurements of what operators see. Beside
// the ready messages it has 100,000 scheduled ones, 10,000 that have failed three times, each with
// another key, 100,000 dead letters with an error each that no other one has, and 100,000 rows in
// the audit log.
type longBacklog struct {
	Admin *admin.Admin
	Rows  int // ready messages

	thread int // of the database server that works for the only connection; 0 with SQLite
}

// newBenchBacklog fills a database with as many messages as [backlogRows] says.
func newBenchBacklog(b *testing.B, database *testdb.Database) *longBacklog {
	b.Helper()
	rows := backlogPart
	if text := os.Getenv(backlogRows); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	return newBacklog(b, database, rows)
}

// newTestBacklog fills a database with 100,000 ready messages.
func newTestBacklog(t *testing.T, database *testdb.Database) *longBacklog {
	t.Helper()
	return newBacklog(t, database, backlogPart)
}

// newBacklog fills a database.
func newBacklog(tb testing.TB, database *testdb.Database, rows int) *longBacklog {
	tb.Helper()
	backlog := &longBacklog{Rows: rows}
	database.Migrate(tb)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(tb, err)
	id, err := spool.New(statements, dashboardtest.Outbox).Open(tb.Context(), database.DB)
	require.NoError(tb, err)
	database.DB.SetMaxOpenConns(1)
	backlog.thread = threadOf(tb, database)
	fill(tb, database, id, backlog.Rows)
	backlog.Admin, err = admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(tb, err)
	return backlog
}

func fill(tb testing.TB, database *testdb.Database, spool int64, rows int) {
	tb.Helper()
	words := map[string]string{
		"key": "CAST('customer-' || r.n AS BLOB)", "text": "'operation-' || r.n", "error": "'card terminal ' || m.id || ' is offline'",
		"subject": "unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at))",
	}
	waiting := "postbox_messages"
	switch database.Dialect {
	case postbox.PostgreSQL:
		words["key"], words["subject"] = "convert_to('customer-' || r.n, 'UTF8')", "'m'::bytea || int8send(m.id) || int8send(m.created_at)"
		waiting = "postbox_waiting"
	case postbox.MySQL:
		words["key"], words["text"], words["error"] = "CONCAT('customer-', r.n)", "CONCAT('operation-', r.n)", "CONCAT('card terminal ', m.id, ' is offline')"
		words["subject"] = "CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0')))"
	case postbox.SQLite:
	}
	in := func(table, statement string) string {
		words["table"] = table
		for name, word := range words {
			statement = strings.ReplaceAll(statement, "{"+name+"}", word)
		}
		return statement
	}
	now := time.Now()
	micros, later := now.UnixMicro(), now.Add(time.Hour).UnixMicro()
	for range rows / backlogPart {
		database.Exec(tb, in("postbox_messages", fillMessages), 0, micros, spool, 0, 0, backlogPart)
	}
	database.Exec(tb, in(waiting, fillMessages), later, micros, spool, 1, 0, backlogPart)
	database.Exec(tb, in(waiting, fillMessages), later, micros, spool, 2, 3, backlogPart/10)
	database.Exec(tb, in(waiting, fillFailures), micros)
	database.Exec(tb, strings.ReplaceAll(in("", fillLetters), "m.id", "r.n"), spool, micros, micros)
	database.Exec(tb, in("", fillAudit), micros)
	if database.Dialect == postbox.PostgreSQL {
		database.Exec(tb, "VACUUM (ANALYZE) postbox_messages") // as autovacuum does soon, and not while it is measured
	}
}
