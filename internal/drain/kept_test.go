package drain_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// ignore lets the database ignore such changes of a table silently, for example UPDATE ON
// postbox_messages, for rows that fulfil a condition. What it returns ends that. MySQL and MariaDB
// have no such triggers.
func (b *bench) ignore(change, table, condition string) (end func()) {
	b.T.Helper()
	if b.Database.Dialect == postbox.SQLite {
		b.Database.Exec(b.T, fmt.Sprintf("CREATE TRIGGER ignored BEFORE %s ON %s WHEN %s BEGIN SELECT RAISE(IGNORE); END", change, table, condition))
		return func() { b.Database.Exec(b.T, "DROP TRIGGER ignored") }
	}
	b.Database.Exec(b.T, "CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
	b.Database.Exec(b.T, fmt.Sprintf("CREATE TRIGGER ignored BEFORE %s ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION ignored()", change, table, condition))
	return func() { b.Database.Exec(b.T, "DROP TRIGGER ignored ON "+table) }
}

// eachThatIgnores runs a test on the databases whose triggers can ignore a change.
func eachThatIgnores(t *testing.T, test func(t *testing.T, database *testdb.Database)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect == postbox.MySQL {
			return // a trigger there can only raise an error
		}
		test(t, database)
	})
}

// A failure that the database ignores keeps its key closed, and is written as soon as the database
// lets it. Until then nothing is tried again. Also covers G7.
func TestDrainer_G3_a_failure_that_the_database_ignores_is_written_later(t *testing.T) {
	t.Parallel()
	moved := map[postbox.Dialect]string{postbox.PostgreSQL: "DELETE", postbox.SQLite: "UPDATE"} // to those that wait
	waiting := map[postbox.Dialect]string{postbox.PostgreSQL: "postbox_waiting", postbox.SQLite: "postbox_messages"}
	for name, c := range map[string]struct {
		ignore func(b *bench) (end func())
		err    error
		tried  int
		dead   int
	}{
		"the first failure": {
			ignore: func(b *bench) func() {
				return b.ignore(moved[b.Database.Dialect], "postbox_messages", "OLD.topic = 'bad'")
			},
			err: errTest, tried: 1,
		},
		"the first failure, which does not arrive among those that wait": {
			ignore: func(b *bench) func() {
				if b.Database.Dialect == postbox.SQLite { // where all have one table
					return b.ignore("UPDATE", "postbox_messages", "NEW.state = 2")
				}
				return b.ignore("INSERT", "postbox_waiting", "NEW.topic = 'bad'")
			},
			err: errTest, tried: 1,
		},
		"the second failure": {
			ignore: func(b *bench) func() {
				return b.ignore("UPDATE", waiting[b.Database.Dialect], "OLD.topic = 'bad' AND OLD.attempts = 1")
			},
			err: errTest, tried: 2,
		},
		"a death": {
			ignore: func(b *bench) func() { return b.ignore("DELETE", "postbox_messages", "OLD.topic = 'bad'") },
			err:    postbox.Permanent(errTest), tried: 1, dead: 1,
		},
		"a dead letter": {
			ignore: func(b *bench) func() { return b.ignore("INSERT", "postbox_dead_letters", "NEW.topic = 'bad'") },
			err:    postbox.Permanent(errTest), tried: 1, dead: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachThatIgnores(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				end := c.ignore(b)
				bad := draft("bad", "k")
				bad.Topic = "bad"
				handler := &recorder{}
				handler.do = func(m *spool.Message) error {
					if m.MessageID == "bad" && m.Attempts < 2 {
						return c.err
					}
					return nil
				}
				b.Append(database.DB, bad, draft("behind", "k"), draft("other", "another key"))
				log := b.startLogged(database.DB, handler, config("one"))
				b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 && handler.tried("other") == 1 }, "it is said, and the others go on")
				require.Equal(t, c.tried, handler.tried("bad"))
				require.Zero(t, handler.tried("behind"))
				require.Zero(t, b.Dead())
				end()
				b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
				require.Equal(t, c.dead, b.Dead())
				want := []string{"bad", "behind"}
				if errors.Is(c.err, postbox.ErrPermanent) {
					want = want[1:]
				}
				require.Equal(t, want, slices.DeleteFunc(handler.ids(), func(id string) bool { return id == "other" }), "in order")
			})
		})
	}
}
