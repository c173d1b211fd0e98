package dashboardtest

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/counts"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// backlogPart is the number of rows that one statement writes.
	backlogPart = 100_000
	// BacklogRows is the variable with the length of a [Backlog], a multiple of backlogPart, which is the default.
	BacklogRows  = "POSTBOX_BENCH_ROWS"
	backlogLanes = 16
)

// digits is a table of the numbers below backlogPart, as n.
const digits = `
WITH d (n) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6
	UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
r (n) AS (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f)`

// The statements of a part: messages of a state in all lanes, dead letters, and rows of the audit log.
const (
	fillMessages = `
INSERT INTO {table} (available_at, created_at, spool, state, lane, attempts, key_hash, ordering_key, topic, message_id, payload, metadata)` + digits + `
SELECT ?, ?, ?, ?, r.n % 16, ?, r.n, {key}, 'orders', 'an id of a message', '{"order":4711}', '{}' FROM r WHERE r.n < ?`

	fillLetters = `
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, ordering_key, key_hash, payload, metadata, created_at, died_at, attempts, error)` + digits + `
SELECT 0, {key}, ?, '', 'orders', 'an id of a message', {key}, r.n, '{"order":4711}', '{}', ?, ?, 5, 'card terminal 7 is offline' FROM r`

	fillAudit = `
INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)` + digits + `
SELECT {text}, ?, 'anna', 'requeue', 'outbox', 'dead letter 7', '', 1, '' FROM r`
)

// Backlog is a database with very many messages, for benchmarks of what operators see. Beside the ready messages it has 100,000 scheduled ones,
// 10,000 that have failed, each with another key, 100,000 dead letters, and 100,000 rows in the audit log.
type Backlog struct {
	Admin *admin.Admin
	Rows  int // ready messages
	// CountCost is how long it took to count them once.
	CountCost time.Duration

	thread int // of the database server that works for the only connection; 0 with SQLite
}

// NewBacklog fills a database with as many messages as [BacklogRows] says, and counts them once, as processes do from time to time.
func NewBacklog(b *testing.B, database *testdb.Database) *Backlog {
	b.Helper()
	backlog := &Backlog{Rows: backlogPart}
	if text := os.Getenv(BacklogRows); text != "" {
		var err error
		backlog.Rows, err = strconv.Atoi(text)
		require.NoError(b, err)
	}
	database.Migrate(b)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(b, err)
	id, err := spool.New(statements, Outbox, backlogLanes).Open(b.Context(), database.DB)
	require.NoError(b, err)
	database.DB.SetMaxOpenConns(1)
	backlog.thread = threadOf(b, database)
	fill(b, database, id, backlog.Rows)
	backlog.Admin, err = admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(b, err)
	cleaner := cleanup.New(database.DB, statements, "bench", cleanup.Config{Interval: time.Hour, Counts: true}, watermill.NopLogger{})
	for backlog.Queue(b).Accuracy.Pending != admin.Counted {
		for range 20 { // steps
			require.True(b, cleaner.Round(b.Context()))
		}
	}
	var stored []byte
	require.NoError(b, database.DB.QueryRowContext(b.Context(), statements.ChoreCursor, counts.Task).Scan(&stored))
	backlog.CountCost = time.Duration(counts.Decode(stored).Ready[id].Cost) * time.Microsecond
	return backlog
}

// Queue counts the outbox.
func (l *Backlog) Queue(b *testing.B) admin.QueueInfo {
	b.Helper()
	list, err := l.Admin.Queues(context.Background())
	require.NoError(b, err)
	require.Len(b, list, 1)
	return list[0]
}

func fill(b *testing.B, database *testdb.Database, spool int64, rows int) {
	b.Helper()
	key, text, waiting := "CAST('customer-' || r.n AS BLOB)", "'operation-' || r.n", "postbox_messages"
	switch database.Dialect {
	case postbox.PostgreSQL:
		key, waiting = "convert_to('customer-' || r.n, 'UTF8')", "postbox_waiting"
	case postbox.MySQL:
		key, text = "CONCAT('customer-', r.n)", "CONCAT('operation-', r.n)"
	case postbox.SQLite:
	}
	in := func(table string) *strings.Replacer {
		return strings.NewReplacer("{table}", table, "{key}", key, "{text}", text)
	}
	now := time.Now()
	micros, later := now.UnixMicro(), now.Add(time.Hour).UnixMicro()
	for range rows / backlogPart {
		database.Exec(b, in("postbox_messages").Replace(fillMessages), 0, micros, spool, 0, 0, backlogPart)
	}
	database.Exec(b, in(waiting).Replace(fillMessages), later, micros, spool, 1, 0, backlogPart)
	database.Exec(b, in(waiting).Replace(fillMessages), later, micros, spool, 2, 3, backlogPart/10)
	database.Exec(b, in("").Replace(fillLetters), spool, micros, micros)
	database.Exec(b, in("").Replace(fillAudit), micros)
	if database.Dialect == postbox.PostgreSQL {
		database.Exec(b, "VACUUM (ANALYZE) postbox_messages") // as autovacuum does soon, and not while it is measured
	}
}
