package dashboard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// longPage is a page that is looked at with a long backlog.
type longPage struct {
	name, address string
	rows          int // that it may read, or entries of an index
	blocks        int // that SQLite may read: each has several rows
}

// Bounds of parts of a page.
const (
	// overviewRows is what the numbers of an outbox need: seven of them are counted up to 10,000
	// each.
	overviewRows, overviewBlocks = 75_000, 2_000
	// searchRows is what a list needs that looks at 10,000 messages. On MariaDB it finds the last
	// of these in an index first.
	searchRows, searchBlocks = 35_000, 1_000
)

// longPages are all kinds of pages, with filters that match nothing, for which most is looked at.
func longPages(tb testing.TB, operator *admin.Admin) []longPage {
	tb.Helper()
	letters, _, err := operator.DeadLetters(tb.Context(), admin.Filter{Limit: 1})
	require.NoError(tb, err)
	messages, _, err := operator.Messages(tb.Context(), admin.Filter{Target: admin.Outbox(dashboardtest.Outbox), Status: admin.Retrying, Limit: 1})
	require.NoError(tb, err)
	const overview, blocks, search, searched = overviewRows, overviewBlocks, searchRows, searchBlocks
	return []longPage{
		{"overview", "overview", overview, blocks},
		{"outbox", "queue?outbox=outbox", overview, blocks},
		{"messages", "messages?outbox=outbox", search, searched},
		{"messages-of-status", "messages?outbox=outbox&status=RETRYING", search, searched},
		{"messages-of-no-status", "messages?outbox=outbox&status=PARKED", search, searched},
		{"messages-of-topic", "messages?outbox=outbox&topic=other", search, searched},
		{"messages-of-key", "messages?outbox=outbox&key=other", search, searched},
		{"messages-of-id", "messages?outbox=outbox&message=other", search, searched},
		{"messages-of-error", "messages?outbox=outbox&error=other", search + 10_000, searched},
		{"messages-of-attempts", "messages?outbox=outbox&min-attempts=7", search, searched},
		{"messages-of-time", "messages?outbox=outbox&written-before=2020-01-01T00:00", search, searched},
		{"messages-done", "messages?outbox=outbox&status=DONE", 100, 100},
		{"message", messageAt("message", messages[0].ID), overview + 1000, blocks + 500},
		{"letters", "letters", search, searched},
		{"letters-of-outbox", "letters?outbox=outbox", search, searched},
		{"letters-of-key", "letters?key=other", search, searched},
		{"letters-of-error", "letters?error=other", search, searched},
		{"groups", "groups", 2 * search, 2 * searched},
		{"groups-of-outbox", "groups?outbox=outbox", 2 * search, 2 * searched},
		{"groups-of-error", "groups?error=other", 2 * search, 2 * searched},
		{"letter", letterAt("letter", letters[0].ID), 100, 100},
		{"keys", "keys", overview + search, blocks + 2*searched},
		{"processes", "processes", 100, 100},
		{"audit", "audit", search, searched},
		{"audit-of-actor", "audit?actor=other", search, searched},
	}
}

// A page reads a bounded number of rows, however many there are: the backlog has 100,000 of most
// kinds.
func TestPages_G8_read_a_bounded_number_of_rows(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		newTestBacklog(t, database)
		db, record := database.OpenRecorded(t)
		operator, err := admin.New(database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		board, err := dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly}, nil)
		require.NoError(t, err)
		for _, page := range longPages(t, operator) {
			read, most := page.reads(t, database, board, record)
			t.Logf("%s reads %d", page.name, read)
			require.LessOrEqual(t, read, most, page.name)
		}
	})
}

// reads returns how many rows, or blocks on SQLite, the statements of a page read, and how many
// they may.
func (p longPage) reads(t *testing.T, database *testdb.Database, board *dashboard.Handler, record *testdb.Record) (read, most int) {
	t.Helper()
	record.Take()
	board.Forget()
	openPage(t, board, p.address)
	most = p.rows
	for _, s := range record.Take() {
		if query := (dialect.Query{Text: s.Text, Args: s.Args}); database.Dialect == postbox.SQLite {
			most = p.blocks
			read += enginetest.PageReads(t, database, query)
		} else {
			read += enginetest.Reads(t, database, query)
		}
	}
	return read, most
}
