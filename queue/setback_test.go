package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// refusal is a way in which a database does not settle the message a/1: triggers on these events of
// a table, and what they do. A database without an action has no such triggers.
type refusal struct {
	table   string
	events  []string
	actions map[postbox.Dialect]string
	history time.Duration
}

var (
	raises = map[postbox.Dialect]string{
		postbox.PostgreSQL: "RAISE EXCEPTION 'verboten'",
		postbox.MySQL:      "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'verboten'",
		postbox.SQLite:     "RAISE(ABORT, 'verboten')",
	}
	conflicting = map[postbox.Dialect]string{
		postbox.PostgreSQL: "RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'",
		postbox.MySQL:      "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'",
	}
	ignores = map[postbox.Dialect]string{postbox.PostgreSQL: "RETURN NULL", postbox.SQLite: "RAISE(IGNORE)"}

	refusals = map[string]refusal{
		"a conflict in the history":        {table: "postbox_history", events: []string{"INSERT"}, actions: conflicting, history: time.Hour},
		"an error of the removal":          {table: "postbox_messages", events: []string{"DELETE"}, actions: raises},
		"an ignored removal":               {table: "postbox_messages", events: []string{"DELETE"}, actions: ignores},
		"an ignored removal with history":  {table: "postbox_messages", events: []string{"DELETE"}, actions: ignores, history: time.Hour},
		"an ignored removal and an update": {table: "postbox_messages", events: []string{"DELETE", "UPDATE"}, actions: ignores},
	}
)

// eachRefusal runs a test for each refusal that the database is capable of, with a queue of its
// own.
func eachRefusal(t *testing.T, test func(b *queueBench, r refusal)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for name, r := range refusals {
			if r.actions[database.Dialect] == "" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newQueueBench(t, inboxtest.Another(t, database)), r)
			})
		}
	})
}

// refuse makes the triggers. The function that it returns drops them.
func (b *queueBench) refuse(r refusal) (end func()) {
	b.T.Helper()
	var drops []string
	action := r.actions[b.Dialect]
	if b.Dialect == postbox.PostgreSQL {
		b.Exec(b.T, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+action+"; END $$")
	}
	for _, event := range r.events {
		row := "OLD"
		if event == "INSERT" {
			row = "NEW"
		}
		trigger, drop := "CREATE TRIGGER refuse_"+event+" BEFORE "+event+" ON "+r.table, "DROP TRIGGER refuse_"+event
		switch b.Dialect {
		case postbox.PostgreSQL:
			trigger += " FOR EACH ROW WHEN (" + row + ".message_id = 'a/1') EXECUTE FUNCTION refuse()"
			drop += " ON " + r.table
		case postbox.MySQL:
			trigger += " FOR EACH ROW IF " + row + ".message_id = 'a/1' THEN " + action + "; END IF"
		case postbox.SQLite:
			trigger += " WHEN " + row + ".message_id = CAST('a/1' AS BLOB) BEGIN SELECT " + action + "; END"
		}
		b.Exec(b.T, trigger)
		drops = append(drops, drop)
	}
	return func() {
		for _, drop := range drops {
			b.Exec(b.T, drop)
		}
	}
}

// toldInARow is after how many refusals in a row Postbox speaks of a message. Each may be five
// conflicts of the batch that it stands in, of its halves and of the message alone.
const toldInARow = 6

// The transaction of a handler can never be ended as it should be, for whatever reason. This is no
// attempt, other keys do not wait, and the pauses grow. Also covers G4 and G7.
func TestQueue_G3_a_message_that_cannot_be_settled_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	for mode, change := range map[string]func(*queue.Config){
		"single": inboxtest.Transactional, "micro-batch": func(c *queue.Config) { c.MicroBatch = 3 },
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			eachRefusal(t, func(b *queueBench, r refusal) {
				end := b.refuse(r)
				b.Put("a/1", "a/2", "b/1", "c/1", "d", "e")
				var runs inboxtest.Journal
				config := inboxtest.Quick(change)
				config.History = r.history
				b.Start(config, func(msg *message.Message) error {
					runs.Add(msg.UUID)
					return b.Effect(msg.Context(), msg)
				})
				b.cannotSettle(&runs, end, "b/1", "c/1", "d", "e")
				require.Equal(b.T, []string{"a/1", "a/2"}, inboxtest.OfKey(b.Effects(), "a"))
			})
		})
	}
}

// Also covers G4 and G7.
func TestBatch_G3_a_message_that_cannot_be_settled_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	eachRefusal(t, func(b *queueBench, r refusal) {
		end := b.refuse(r)
		b.Put("a/1", "a/2", "b/1", "c/1", "d", "e")
		var runs inboxtest.Journal
		b.Batch(inboxtest.QuickBatch(func(c *queue.BatchConfig) { c.Worker.Transactional, c.Worker.History = true, r.history }),
			func(ctx context.Context, messages []*message.Message) error {
				for _, msg := range messages {
					runs.Add(msg.UUID)
				}
				return b.BatchEffects(ctx, messages)
			})
		b.cannotSettle(&runs, end, "b/1", "c/1", "d", "e")
	})
}

// cannotSettle waits until Postbox has spoken of the message a/1, and judges.
func (b *queueBench) cannotSettle(runs *inboxtest.Journal, end func(), others ...string) {
	b.T.Helper()
	b.Eventually(func() bool { return b.Pending() == 2 }, "the others are done")
	require.ElementsMatch(b.T, others, b.Effects())
	b.Eventually(func() bool { return len(b.Failures()) == 1 }, "it is noted")
	require.Contains(b.T, b.Failures()[0], "the message could not be settled 6 times in a row")
	b.Put("f")
	b.Eventually(func() bool { return b.Pending() == 2 }, "others are done all the while")
	const perTime = 5 // tries at once where it conflicts
	require.LessOrEqual(b.T, runs.Times("a/1"), (toldInARow+5)*perTime, "it does not run at full speed")
	require.Zero(b.T, b.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))

	end()
	b.Drained()
	require.ElementsMatch(b.T, append(others, "f", "a/1", "a/2"), b.Effects())
	require.Empty(b.T, b.Dead())
}
