package inboxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refuseToKeep lets the database refuse to write the message a/1 to the history: with a conflict, or, on SQLite, which has none to
// raise, to remove the message. What it returns ends that.
func (b *queueBench) refuseToKeep() (end func()) {
	b.t.Helper()
	drop := "DROP TRIGGER refuse"
	switch b.Dialect {
	case postbox.PostgreSQL:
		drop += " ON postbox_history"
		b.Exec(b.t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$")
		b.Exec(b.t, "CREATE TRIGGER refuse BEFORE INSERT ON postbox_history FOR EACH ROW WHEN (NEW.message_id = 'a/1') EXECUTE FUNCTION refuse()")
	case postbox.MySQL:
		b.Exec(b.t, "CREATE TRIGGER refuse BEFORE INSERT ON postbox_history FOR EACH ROW IF NEW.message_id = 'a/1' THEN "+
			"SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'; END IF")
	case postbox.SQLite:
		b.Exec(b.t, "CREATE TRIGGER refuse BEFORE DELETE ON postbox_messages WHEN OLD.message_id = CAST('a/1' AS BLOB) BEGIN SELECT RAISE(IGNORE); END")
	}
	return func() { b.Exec(b.t, drop) }
}

// forbidToRemove lets the database refuse with an error to remove the message a/1. What it returns ends that.
func (b *queueBench) forbidToRemove() (end func()) {
	b.t.Helper()
	drop := "DROP TRIGGER forbid"
	switch b.Dialect {
	case postbox.PostgreSQL:
		drop += " ON postbox_messages"
		b.Exec(b.t, "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'verboten'; END $$")
		b.Exec(b.t, "CREATE TRIGGER forbid BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.message_id = 'a/1') EXECUTE FUNCTION forbid()")
	case postbox.MySQL:
		b.Exec(b.t, "CREATE TRIGGER forbid BEFORE DELETE ON postbox_messages FOR EACH ROW IF OLD.message_id = 'a/1' THEN "+
			"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'verboten'; END IF")
	case postbox.SQLite:
		b.Exec(b.t, "CREATE TRIGGER forbid BEFORE DELETE ON postbox_messages WHEN OLD.message_id = CAST('a/1' AS BLOB) BEGIN SELECT RAISE(ABORT, 'verboten'); END")
	}
	return func() { b.Exec(b.t, drop) }
}

// refusals are the ways in which a database refuses to settle the message a/1.
var refusals = map[string]func(*queueBench) (end func()){
	"kept from the history": (*queueBench).refuseToKeep, "forbidden to remove": (*queueBench).forbidToRemove,
}

// toldInARow is after how many refusals in a row Postbox speaks of a message. Each may be five conflicts of the batch that it stands in, of its
// halves and of the message alone.
const toldInARow = 6

// The transaction of a handler can never be ended as it should be, for whatever reason. That is no attempt, no others wait, and it
// takes less and less time.
func TestQueue_G7_a_message_that_cannot_be_settled_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	modes := map[string]func(*inboxstore.QueueConfig){
		"single": transactional, "micro-batch": func(c *inboxstore.QueueConfig) { c.MicroBatch = 3 },
	}
	for mode, change := range modes {
		for name, refuse := range refusals {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					end := refuse(b)
					b.put("a/1", "a/2", "b/1", "c/1", "d", "e")
					var runs journal
					b.start(keeping(quick(change)), func(msg *message.Message) error {
						runs.add(msg.UUID)
						return b.effect(msg.Context(), msg)
					})
					b.cannotSettle(&runs, end, "b/1", "c/1", "d", "e")
					require.Equal(t, []string{"a/1", "a/2"}, ofKey(b.effects(), "a"))
				})
			})
		}
	}
}

func TestBatch_G7_a_message_that_cannot_be_settled_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				end := refuse(b)
				b.put("a/1", "a/2", "b/1", "c/1", "d", "e")
				var runs journal
				b.batch(quickBatch(func(c *inboxstore.BatchConfig) {
					c.QueueConfig = keeping(c.QueueConfig)
					c.QueueConfig.Transactional = true
				}),
					func(ctx context.Context, messages []*message.Message) error {
						for _, msg := range messages {
							runs.add(msg.UUID)
						}
						return b.batchEffects(ctx, messages)
					})
				b.cannotSettle(&runs, end, "b/1", "c/1", "d", "e")
			})
		})
	}
}

func keeping(c inboxstore.QueueConfig) inboxstore.QueueConfig {
	c.History = time.Hour
	return c
}

// cannotSettle waits until Postbox has spoken of the message a/1, and judges.
func (b *queueBench) cannotSettle(runs *journal, end func(), others ...string) {
	b.t.Helper()
	b.eventually(func() bool { return b.pending() == 2 }, "the others are done")
	require.ElementsMatch(b.t, others, b.effects())
	b.eventually(func() bool { return len(b.failures()) == 1 }, "it is noted")
	require.Contains(b.t, b.failures()[0], "could not be settled, 6 times in a row")
	b.put("f")
	b.eventually(func() bool { return b.pending() == 2 }, "others are done all the while")
	const perTime = 5 // tries at once where it conflicts
	require.LessOrEqual(b.t, runs.times("a/1"), (toldInARow+5)*perTime, "it does not run at full speed")
	require.Zero(b.t, b.Count(b.t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))

	end()
	b.drained()
	require.ElementsMatch(b.t, append(others, "f", "a/1", "a/2"), b.effects())
	require.Empty(b.t, b.dead())
}

// keepRow lets the database silently keep the row of the message a/1: it ignores its removal, and also its update where asked to. What it returns
// ends that. MySQL and MariaDB have no such triggers.
func (b *queueBench) keepRow(updates bool) (end func()) {
	b.t.Helper()
	var drops []string
	changes := []string{"DELETE"}
	if updates {
		changes = append(changes, "UPDATE")
	}
	if b.Dialect == postbox.PostgreSQL {
		b.Exec(b.t, "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
	}
	for _, change := range changes {
		on := "BEFORE " + change + " ON postbox_messages"
		if b.Dialect == postbox.PostgreSQL {
			b.Exec(b.t, "CREATE TRIGGER keep_"+change+" "+on+" FOR EACH ROW WHEN (OLD.message_id = 'a/1') EXECUTE FUNCTION keep()")
			drops = append(drops, "DROP TRIGGER keep_"+change+" ON postbox_messages")
		} else {
			b.Exec(b.t, "CREATE TRIGGER keep_"+change+" "+on+" WHEN OLD.message_id = CAST('a/1' AS BLOB) BEGIN SELECT RAISE(IGNORE); END")
			drops = append(drops, "DROP TRIGGER keep_"+change)
		}
	}
	return func() {
		for _, drop := range drops {
			b.Exec(b.t, drop)
		}
	}
}

// The handler's transaction removes nothing, and the database reports no error. Nothing that the handler wrote is committed, its key waits, and it
// runs again after pauses that grow.
func TestQueue_G3_G4_a_message_whose_row_the_database_keeps_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*inboxstore.QueueConfig)
		updates bool
	}{
		"single": {change: transactional}, "micro-batch": {change: func(c *inboxstore.QueueConfig) { c.MicroBatch = 3 }},
		"updates too": {change: transactional, updates: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if database.Dialect == postbox.MySQL {
					return
				}
				b := newQueueBench(t, database)
				end := b.keepRow(c.updates)
				b.put("a/1", "a/2", "b/1", "c/1", "d", "e")
				var runs journal
				b.start(quick(c.change), func(msg *message.Message) error {
					runs.add(msg.UUID)
					return b.effect(msg.Context(), msg)
				})
				b.cannotSettle(&runs, end, "b/1", "c/1", "d", "e")
				require.Equal(t, []string{"a/1", "a/2"}, ofKey(b.effects(), "a"))
			})
		})
	}
}
