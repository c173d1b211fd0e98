package admin_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// found is what Find says of something, one line an event.
func (b *bench) found(text string) (lines []string, found *admin.Found) {
	b.Helper()
	found, err := b.admin.Find(b.Context(), text)
	require.NoError(b, err)
	for i, e := range found.Events {
		if i > 0 {
			require.False(b, e.At.Before(found.Events[i-1].At), "in the order of time")
		}
		lines = append(lines, strings.TrimSpace(e.Text+" "+e.Error))
	}
	return lines, found
}

// The whole way of a message is found by whatever an operator knows of it.
func TestFind_tells_the_way_of_a_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		one := draft("order-1", "orders", "customer-1")
		delete(one.Metadata, "bytes") // which are no text
		one.Metadata[postbox.MetadataCorrelationID] = "request-1"
		two := draft("order-2", "orders", "customer-2")
		b.append(one, two, draft("order-3", "orders", "customer-3"))
		var tried atomic.Bool // order-1 was; handlers of several keys run at a time
		h := newHandler(func(m *spool.Message) error {
			if m.MessageID == "order-2" || (m.MessageID == "order-1" && !tried.Swap(true)) {
				return errors.New("card declined")
			}
			return nil
		})
		stop := b.drainWith(database.DB, h, func(c *drain.Config) { c.History = time.Hour })
		b.eventually(func() bool { return b.pending() == 0 }, "all are done or dead")
		stop()
		b.append(draft("order-4", "orders", "customer-1"))
		b.received("order-1")
		b.run(b.statements.AddReceipt(dialect.ReceivedRow{
			Key: receipt.Key("order-1", "orders", "shipping"), Topic: "orders", MessageID: []byte("order-1"), Consumer: "shipping", HandledAt: time.Now().UnixMicro(),
		}))
		_, err := b.admin.Resolve(t.Context(), admin.Filter{ID: 1}, "paid in cash")
		require.NoError(t, err)

		of := b.target.String()
		way := []string{
			"written to the " + of, "attempt 1 failed, in forwarder card declined", "published by attempt 2, N after it was written, in P",
			`received and handled by the consumer "billing" within N, in P`, `handled by the consumer "shipping", as its receipt says`,
		}
		for _, text := range []string{"order-1", "request-1"} {
			lines, found := b.found(text)
			require.ElementsMatch(t, way, withoutSpans(lines), text)
			require.Empty(t, found.Parts)
			require.False(t, found.More)
			for _, e := range found.Events {
				require.Equal(t, "order-1", e.MessageID)
			}
		}
		lines, _ := b.found("customer-1") // the key has another message, that waits
		require.Subset(t, withoutSpans(lines), append(way, "is ready, and waits for its turn or the end of a pause"))

		dead := []string{
			"written to the " + of, "attempt 1 failed, in forwarder card declined", "attempt 2 failed, in forwarder card declined",
			"became dead letter 1 of the " + of + ", after 2 attempts: they are used up card declined", "resolved: paid in cash",
		}
		for _, text := range []string{"order-2", "customer-2"} {
			lines, _ := b.found(text)
			require.Subset(t, lines, dead, text)
			require.Contains(t, strings.Join(lines, "\n"), "resolve dead letter 1: paid in cash", "what operators did")
			require.Len(t, lines, len(dead)+1)
		}
		lines, _ = b.found("declined")
		require.Subset(t, lines, dead)
		lines, _ = b.found("order-4")
		require.Equal(t, []string{"written to the " + of, "is ready, and waits for its turn or the end of a pause"}, lines)

		lines, found := b.found("order-5")
		require.Empty(t, lines)
		require.Empty(t, found.Parts)
		require.Empty(t, found.Forget, "all have a history")
		_, err = b.admin.Find(t.Context(), "")
		require.ErrorIs(t, err, admin.ErrInvalid)
	})
}

// done is the end of a line about a message that is done: how long it took, and in which process.
var done = regexp.MustCompile(`[0-9.]+m?s( after it was written)?, in \S.*$`)

func withoutSpans(lines []string) []string {
	for i, line := range lines {
		lines[i] = done.ReplaceAllString(line, "N$1, in P")
	}
	return lines
}

// Numbers name messages and dead letters, and what operators did to one of another queue is left
// out.
// What an operator has set comes before what processes have.
func TestFind_names_those_that_keep_no_history_now(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		stop := b.drainWith(database.DB, newHandler(nil), func(c *drain.Config) { c.History = time.Hour })
		stop()
		for _, c := range []struct {
			history time.Duration
			forgets bool
		}{{0, false}, {-1, true}, {time.Hour, false}} {
			_, err := b.admin.ChangeSettings(t.Context(), b.target, func(s *admin.Settings) error {
				s.History = c.history
				return nil
			})
			require.NoError(t, err)
			_, found := b.found("nothing")
			require.Equal(t, c.forgets, slices.Contains(found.Forget, b.target), "%s", c.history)
		}
		database.Exec(t, "UPDATE postbox_spools SET history = 0")
		_, found := b.found("nothing")
		require.NotContains(t, found.Forget, b.target, "an operator has turned it on")
	})
}

func TestFind_by_number(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(draft("order-1", "orders", ""))
		b.buryInbox("order-2", 0)
		m, _ := b.page(admin.Filter{})
		_, err := b.admin.Reschedule(t.Context(), admin.Filter{Topic: "orders", Target: b.target}, time.Now())
		require.NoError(t, err)
		lines, found := b.found(fmt.Sprint(m[0].ID))
		require.Contains(t, lines, "is ready, and waits for its turn or the end of a pause")
		require.Contains(t, found.Forget, b.target, "it has no history")
		letter := b.only(admin.Filter{})
		lines, _ = b.found(fmt.Sprint(letter.ID))
		require.Contains(t, strings.Join(lines, "\n"), fmt.Sprintf(`became dead letter %d of the consumer "billing", after 2 attempts`, letter.ID))
		_, err = b.admin.Delete(t.Context(), admin.Filter{ID: letter.ID})
		require.NoError(t, err)
		lines, _ = b.found(fmt.Sprintf("dead letter %d", letter.ID))
		require.Contains(t, strings.Join(lines, "\n"), fmt.Sprintf("delete dead letter %d", letter.ID))
	})
}

// However much is stored, few rows are read, whatever the statistics say, and what was left out is
// told.
func TestFind_G8_reads_few_of_very_many(t *testing.T) {
	t.Parallel()
	const many = 30_000
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		outbox := b.outboxID()
		b.append(draft("order-1", "orders", ""))
		b.buryInbox("letter-1", 0)
		b.exec(database.Bind(b.insertHistory()), 1, outbox, 1)
		copies := map[string]string{
			"messages":     "spool, state, lane, available_at, created_at, topic, message_id, metadata",
			"dead_letters": "origin, subject, spool, consumer, topic, message_id, metadata, created_at, died_at, attempts, error",
			"history":      "created_at, spool, topic, message_id, metadata, done_at, attempts",
		}
		for round := 0; 1<<round < many; round++ {
			for table, columns := range copies {
				id := columns + ") SELECT "
				if table == "history" {
					id = fmt.Sprintf("id, %s) SELECT id + %d, ", columns, 1<<round)
				}
				from := "postbox_" + table
				if database.Dialect == postbox.PostgreSQL && table == "messages" {
					from = "ONLY " + from
				}
				database.Exec(t, "INSERT INTO postbox_"+table+" ("+id+columns+" FROM "+from)
			}
			if round == 3 && database.Dialect == postbox.PostgreSQL { // the tables grow after that
				database.Exec(t, "ANALYZE")
			}
		}
		another := `UPDATE postbox_%[1]s SET message_id = ? WHERE id = (SELECT x.id FROM (SELECT MAX(id) AS id FROM postbox_%[1]s) x)`
		for table := range copies {
			database.Exec(t, fmt.Sprintf(another, table), []byte("the-last-of-"+table))
		}
		db, record := database.OpenRecorded(t)
		operator, err := admin.New(database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		for _, text := range []string{"the-last-of-history", "the-last-of-dead_letters", "the-last-of-messages", "none", "7"} {
			record.Take()
			begun := time.Now()
			found, err := operator.Find(t.Context(), text)
			require.NoError(t, err)
			t.Logf("%s %s: %s, %d events", database.Dialect, text, time.Since(begun), len(found.Events))
			require.Len(t, found.Parts, 3, "%v", found.Parts)
			switch text {
			case "the-last-of-history", "the-last-of-dead_letters", "7":
				require.NotEmpty(t, found.Events, text)
			default:
				require.Empty(t, found.Events, text)
			}
			asked := record.Take()
			require.NotEmpty(t, asked)
			for _, query := range asked {
				reads := enginetest.Reads(t, database, dialect.Query{Text: query.Text, Args: query.Args})
				require.LessOrEqual(t, reads, 25_000, "%s: %s", text, query.Text)
			}
		}
	})
}

// However many outboxes and queues there are, a search is a handful of statements, and looks at all
// messages of those that have few.
func TestFind_G8_looks_at_many_outboxes_at_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const outboxes = 150
		for i := range outboxes {
			name := fmt.Sprintf("outbox-%03d", i)
			b.database.Exec(t, "INSERT INTO postbox_spools (name) VALUES (?)", name)
			messages := 1
			if i == 1 { // it has more than a few
				messages = 120
			}
			require.NoError(t, spool.New(b.statements, name).Append(t.Context(), b.database.DB, spool.Run, numbered(messages)))
		}
		another := "UPDATE postbox_messages SET message_id = ? WHERE spool = (SELECT id FROM postbox_spools WHERE name = ?)"
		b.database.Exec(t, another+" AND message_id = ?", []byte("wanted"), "outbox-001", []byte("0110"))
		b.database.Exec(t, another, []byte("wanted"), "outbox-149")
		done, err := spool.New(b.statements, "outbox-002").Open(t.Context(), b.database.DB)
		require.NoError(t, err)
		b.exec(database.Bind(b.insertHistory()), 1_000_000, done, 1)
		b.database.Exec(t, "UPDATE postbox_history SET ordering_key = ?", []byte("wanted"))
		db, record := b.database.OpenRecorded(t)
		operator, err := admin.New(b.database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		record.Take()
		found, err := operator.Find(t.Context(), "wanted")
		require.NoError(t, err)
		require.LessOrEqual(t, len(record.Take()), 20)
		var at []string
		for _, event := range found.Events {
			if event.Text == "is ready, and waits for its turn or the end of a pause" || strings.Contains(event.Text, "published by attempt") {
				at = append(at, event.Target.Name)
			}
		}
		require.ElementsMatch(t, []string{"outbox-001", "outbox-002", "outbox-149"}, at, "in %v", found.Events)
		require.Empty(t, found.Parts)
	})
}
