package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A burial may fail as late as at the commit. PostgreSQL can be made to refuse one there.
func TestDrainer_says_that_a_message_is_dead_once_it_is(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect != postbox.PostgreSQL {
			return
		}
		b := newBench(t, database)
		database.Exec(t, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'verboten'; END $$")
		database.Exec(t, `CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON postbox_dead_letters DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION refuse()`)
		handler := &recorder{do: func(*spool.Message) error { return postbox.Permanent(errTest) }}
		log := b.startLogged(database.DB, handler, config("one"))
		b.Append(database.DB, draft("bad", ""))
		b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "the burial is refused")
		const moved = "Postbox moved a message to the dead letters"
		require.Zero(t, log.Said(moved))
		database.Exec(t, "DROP TRIGGER refuse ON postbox_dead_letters")
		b.Eventually(func() bool { return log.Said(moved) == 1 }, "it is said")
		require.Equal(t, 1, b.Dead())
	})
}
