package drain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refusal is a way in which a database never removes a message: with a conflict, with another
// error, or without a word.
type refusal string

const (
	conflicts refusal = "conflicts"
	forbids   refusal = "forbids"
)

// refusals are those that each database is capable of.
var refusals = map[postbox.Dialect][]refusal{
	postbox.PostgreSQL: {conflicts, forbids}, postbox.MySQL: {conflicts, forbids}, postbox.SQLite: {forbids},
}

// refuse lets the database refuse to remove the message "bad". What it returns ends that.
func (b *bench) refuse(kind refusal) (end func()) {
	b.T.Helper()
	table := "ON postbox_messages"
	switch b.Database.Dialect {
	case postbox.PostgreSQL:
		body := ""
		switch kind {
		case conflicts:
			body = "RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001';"
		case forbids:
			body = "RAISE EXCEPTION 'verboten';"
		}
		b.Database.Exec(b.T, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+body+" END $$")
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.message_id = 'bad') EXECUTE FUNCTION refuse()")
	case postbox.MySQL:
		table = ""
		signal := "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'"
		if kind == forbids {
			signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'verboten'"
		}
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE DELETE ON postbox_messages FOR EACH ROW IF OLD.message_id = 'bad' THEN "+signal+"; END IF")
	case postbox.SQLite:
		table = ""
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE DELETE ON postbox_messages WHEN OLD.message_id = CAST('bad' AS BLOB) BEGIN SELECT RAISE(ABORT, 'verboten'); END")
	}
	return func() { b.Database.Exec(b.T, "DROP TRIGGER refuse "+table) }
}

const (
	toldOfSetbacks = "Postbox cannot settle a message and goes on trying"
	toldOfTheirEnd = "Postbox has settled a message that it could not settle before"
	conflictLogged = "Postbox is blocked by conflicts with other transactions"
)

// The database never removes one message, and its drainer, or its handler's transaction, tries for
// ever.
func TestDrainer_G7_lasting_conflict_of_one_message_holds_up_no_other(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		transactional bool
		history       time.Duration
	}{
		"plain": {}, "with a history": {history: time.Hour}, "transactional": {transactional: true},
		"transactional with a history": {transactional: true, history: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				for _, kind := range refusals[database.Dialect] {
					if c.transactional && kind == forbids {
						continue // an error in the transaction of a handler is judged by whoever runs the handler
					}
					t.Run(string(kind), func(t *testing.T) { lastingConflict(t, database, kind, c.transactional, c.history) })
				}
			})
		})
	}
}

func lastingConflict(t *testing.T, database *testdb.Database, kind refusal, transactional bool, history time.Duration) {
	t.Helper()
	b := newBench(t, database)
	database.Exec(t, "DELETE FROM postbox_failures")
	end := b.refuse(kind)
	b.Append(database.DB, draft("bad", "k"), draft("behind", "k"))
	b.Append(database.DB, drafts(40, func(i int) string { return []string{"", "a", "b"}[i%3] })...)
	var handler drain.Handler = &recorder{}
	runs := handler.(*recorder)
	if transactional {
		database.Exec(t, "DROP TABLE IF EXISTS effects")
		b.effects()
		e := &effector{p: &process{b: b, db: database.Open(t), dead: make(chan struct{})}}
		handler, runs = e, &e.recorder
	}
	c := config("one")
	c.History = history
	log := b.startLogged(database.DB, handler, c)
	waiting := func() int {
		return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id NOT IN (?, ?, ?)", []byte("bad"), []byte("behind"), []byte("late"))
	}
	b.Eventually(func() bool { return waiting() == 0 }, "the others are done")
	b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "it is said")
	b.Append(database.DB, draft("late", "k"))
	b.Append(database.DB, drafts(10, func(int) string { return "a" })...)
	b.Eventually(func() bool { return waiting() == 0 }, "others are done all the while")
	require.LessOrEqual(t, runs.tried("bad"), 10, "it does not run at full speed")
	require.Zero(t, runs.tried("late"), "its key waits")
	if !transactional {
		require.Equal(t, 1, runs.tried("bad"), "what is done is not handled again, but removed later")
	}
	require.Equal(t, "bad", log.At(watermill.ErrorLogLevel)[0].Fields["message_uuid"])
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt = 0 AND error LIKE '%6 times in a row%'"), "operators see it")
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))

	end()
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are done when the obstacle is gone")
	b.Eventually(func() bool { return log.Said(toldOfTheirEnd) == 1 }, "and that is said")
	require.Equal(t, 1, log.Said(toldOfSetbacks), "it was said once")
	if transactional {
		require.Equal(t, 1, b.effect("bad"))
		require.Equal(t, 1, b.effect("behind"))
		require.Equal(t, 1, b.effect("late"))
	}
	require.Zero(t, b.Dead())
}

// A failure that the database refuses to write keeps the key closed for as long. What stands behind
// it may be more than a read takes of a lane, and the other keys of that lane go on all the same.
// Also covers G7.
func TestDrainer_G3_a_failure_that_cannot_be_written_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		end := b.refuse(conflicts)
		stored := []spool.Draft{draft("bad", "k")}
		for i := range 400 {
			stored = append(stored, draft(fmt.Sprintf("behind %03d", i), "k"))
		}
		b.Append(database.DB, stored...)
		b.Append(database.DB, drafts(100, func(i int) string { return fmt.Sprint(i) })...) // some of them in the lane of k
		handler := &recorder{do: func(m *spool.Message) error {
			if m.MessageID == "bad" {
				return postbox.Permanent(errTest)
			}
			return nil
		}}
		log := b.startLogged(database.DB, handler, config("one"))
		b.Eventually(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE ordering_key <> 'k'") == 0
		}, "the others are done")
		b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "it is said")
		require.Equal(t, 401, b.Pending(), "its key waits")
		end()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are done when the obstacle is gone")
		require.Equal(t, 1, b.Dead())
		ids := slices.DeleteFunc(handler.ids(), func(id string) bool { return len(id) == len("00000") })
		require.True(t, slices.IsSorted(ids), "in order")
		require.Len(t, ids, 400)
	})
}

// What the drainer writes by itself conflicts for ever: it slows down, says so once, and goes on as
// soon as it can.
func TestDrainer_G7_lasting_conflict_of_the_drainer_is_said_once(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		log := b.startLogged(database.DB, &recorder{}, config("one"))
		b.Append(database.DB, draft("before", ""))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the first message is done")
		drop := "DROP TRIGGER refuse ON postbox_members"
		if database.Dialect == postbox.PostgreSQL {
			database.Exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001'; END $$")
			database.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_members FOR EACH ROW EXECUTE FUNCTION refuse()")
		} else {
			drop = "DROP TRIGGER refuse"
			database.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_members FOR EACH ROW SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'")
		}
		b.Eventually(func() bool { return log.Said(conflictLogged) == 1 }, "it is said")
		database.Exec(t, drop)
		b.Eventually(func() bool { return log.Said("Postbox works again") == 1 }, "its end too")
		b.Append(database.DB, draft("after", ""))
		b.Eventually(func() bool { return b.Pending() == 0 }, "it goes on")
		require.Len(t, log.At(watermill.ErrorLogLevel), 1)
	})
}

// The message waited for another attempt before, and so is not removed together with those that are
// simply done.
func TestDrainer_G7_lasting_conflict_of_a_retried_message_counts_no_attempt(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	end := b.refuse(forbids)
	b.Append(database.DB, draft("bad", "k"))
	failed := false
	handler := &recorder{do: func(*spool.Message) error {
		if !failed {
			failed = true
			return errTest
		}
		return nil
	}}
	log := b.startLogged(database.DB, handler, config("one"))
	b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "it is said")
	require.LessOrEqual(t, handler.tried("bad"), 10, "it does not run at full speed")
	end()
	b.Eventually(func() bool { return b.Pending() == 0 }, "it is done when the obstacle is gone")
}
