package forwarder_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A trigger of the user ignores the removal of a message and reports no error. The broker gets each
// message once and in order, and nothing of the key that was stored after that message.
func TestForwarder_G3_a_message_whose_row_is_kept_is_published_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		drop := "DROP TRIGGER kept"
		switch database.Dialect {
		case postbox.PostgreSQL:
			database.Exec(t, "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
			database.Exec(t, "CREATE TRIGGER kept BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.message_id = '20') EXECUTE FUNCTION kept()")
			drop += " ON postbox_messages"
		case postbox.SQLite:
			database.Exec(t, "CREATE TRIGGER kept BEFORE DELETE ON postbox_messages WHEN OLD.message_id = CAST('20' AS BLOB) BEGIN SELECT RAISE(IGNORE); END")
		case postbox.MySQL:
			return // a trigger there can only raise an error
		}
		broker := &broker{}
		publisher := publisherFor(t, database, nil)
		run(t, forwarderFor(t, database, broker, nil))
		var want []string
		put := func(from, to int) {
			for i := from; i < to; i++ {
				id := fmt.Sprint(i)
				want = append(want, id)
				inTx(t, database.DB, publisher, "orders", newMessage(id, "k"))
			}
		}
		put(10, 21)
		setbacks := func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt = 0 AND error LIKE '%6 times in a row%'") == 1
		}
		eventually(t, setbacks, "it has been tried to remove it")
		put(21, 30)
		inTx(t, database.DB, publisher, "orders", newMessage("other", "another key"))
		published := func(id string) (times int) {
			for _, p := range broker.all() {
				if p.message.UUID == id {
					times++
				}
			}
			return times
		}
		eventually(t, func() bool { return published("other") == 1 }, "others go on")
		require.Zero(t, published("21"), "the key waits")
		database.Exec(t, drop)
		eventually(t, func() bool { return pending(t, database) == 0 }, "all go")
		var got []string
		for _, p := range broker.all() {
			if p.message.UUID != "other" {
				got = append(got, p.message.UUID)
			}
		}
		require.Equal(t, want, got)
	})
}
