// Package enginetest holds what the tests of the engine's packages share: a spool on a database,
// and a logger that remembers.
package enginetest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// Patience is how long a test waits for something that must happen.
	Patience = time.Minute
	// Lanes is how many lanes the spool of a bench has.
	Lanes = dialect.Lanes
)

// Bench is a spool on a database, with what a test needs around it.
type Bench struct {
	T          *testing.T
	Database   *testdb.Database
	Statements *dialect.Statements
	Spool      *spool.Spool
}

// NewBench returns a bench whose database has the tables.
func NewBench(t *testing.T, database *testdb.Database) *Bench {
	t.Helper()
	return NewUnmigratedBench(t, database.Migrate(t))
}

// NewUnmigratedBench returns a bench on a database as it is.
func NewUnmigratedBench(t *testing.T, database *testdb.Database) *Bench {
	t.Helper()
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	return &Bench{T: t, Database: database, Statements: statements, Spool: spool.New(statements, "outbox"+t.Name())}
}

// Append stores messages.
func (b *Bench) Append(db spool.Executor, drafts ...spool.Draft) {
	b.T.Helper()
	err := b.Database.Again(func() error { return b.Spool.Append(b.T.Context(), db, spool.Run, drafts) }, dialect.Conflict)
	require.NoError(b.T, err)
}

// Eventually waits until the condition holds.
func (b *Bench) Eventually(condition func() bool, what string) {
	b.T.Helper()
	require.Eventually(b.T, condition, Patience, testdb.PollPause, what)
}

// Pending returns how many messages are stored.
func (b *Bench) Pending() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_messages")
}

// Dead returns how many dead letters there are.
func (b *Bench) Dead() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_dead_letters")
}

// Draft returns a message to store. An empty key is none.
func Draft(id, key string) spool.Draft {
	return spool.Draft{Topic: "orders", MessageID: id, Key: key, Payload: []byte(`{"id":"` + id + `"}`)}
}

// Drafts returns n messages with ids in ascending order.
func Drafts(n int, key func(i int) string) []spool.Draft {
	list := make([]spool.Draft, n)
	for i := range list {
		list[i] = Draft(fmt.Sprintf("%05d", i), key(i))
	}
	return list
}

// Plan returns how a database finds what a statement is about.
func (b *Bench) Plan(query dialect.Query) string {
	b.T.Helper()
	explain := map[postbox.Dialect]string{
		postbox.PostgreSQL: "EXPLAIN ", postbox.MySQL: "EXPLAIN FORMAT=TRADITIONAL ", postbox.SQLite: "EXPLAIN QUERY PLAN ",
	}[b.Database.Dialect]
	rows, err := b.Database.DB.QueryContext(b.T.Context(), explain+query.Text, query.Args...)
	require.NoError(b.T, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(b.T, err)
	var plan strings.Builder
	for rows.Next() {
		fields := make([]any, len(columns))
		for i := range fields {
			fields[i] = new(sql.NullString)
		}
		require.NoError(b.T, rows.Scan(fields...))
		for i, name := range columns {
			fmt.Fprintf(&plan, "%s=%s ", name, fields[i].(*sql.NullString).String)
		}
		plan.WriteString("\n")
	}
	require.NoError(b.T, rows.Err())
	return plan.String()
}
