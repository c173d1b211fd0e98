package counts

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Every statement that counts reads no more than it may, although the tables have many more rows,
// and whatever the planner knows about them.
func TestStatements_G8_read_a_bounded_number_of_rows(t *testing.T) {
	t.Parallel()
	const rows = 2000
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.ready(2 * rows)
		b.exec("UPDATE postbox_messages SET state = 1 WHERE id % 4 = 1")
		b.exec("UPDATE postbox_messages SET state = 2, attempts = 3, available_at = available_at + 1 WHERE id % 4 = 3")
		b.exec("UPDATE postbox_messages SET available_at = available_at + ? WHERE id % 8 = 3", int64(dialect.ParkDelay))
		database.MoveWaiting(t)
		b.exec(`INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts)
			SELECT CASE WHEN id % 2 = 0 THEN 0 ELSE 1 END, message_id, 'no', CASE WHEN id % 2 = 0 THEN spool END, 'billing', topic, message_id, payload, metadata, created_at, created_at + id, 3 FROM postbox_messages`)
		b.exec(`INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts)
			SELECT id, spool, topic, message_id, payload, metadata, created_at, created_at + id, 1 FROM postbox_messages`)

		numbers := b.Statements.CountUpTo([]int64{b.id}, limit)
		few := append(b.Statements.CountFew([]int64{b.id}, limit), numbers...)
		for name, test := range map[string]struct {
			query dialect.Query
			most  int // rows or index entries
		}{
			"whether a spool has few": {few[0], 7 * limit},
			"numbers of a spool":      {numbers[0], 7 * limit},
			"dead letters of inboxes": {dialect.Query{Text: b.Statements.InboxLetters, Args: []any{limit}}, limit},
			"ages":                    {dialect.Query{Text: b.Statements.Ages}, 3*enginetest.Lanes + 20},
			"which spools are empty":  {dialect.Query{Text: b.Statements.Fullness}, 20},
		} {
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					b.analyze()
				}
				// Databases count a few steps more, such as the one behind the last row of a range.
				require.LessOrEqual(t, b.Reads(test.query), test.most+test.most/2+20, name)
			}
		}
	})
}

func (b *bench) analyze() {
	b.T.Helper()
	for _, table := range []string{"messages", "dead_letters", "history"} {
		b.exec(map[postbox.Dialect]string{
			postbox.PostgreSQL: "ANALYZE postbox_", postbox.MySQL: "ANALYZE TABLE postbox_", postbox.SQLite: "ANALYZE postbox_",
		}[b.Database.Dialect] + table)
	}
	if b.Database.Dialect == postbox.PostgreSQL {
		b.exec("ANALYZE postbox_waiting")
	}
}
