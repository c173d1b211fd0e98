package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// ignoreLetters lets the database store no dead letter, silently. What it returns ends that. MySQL
// and MariaDB have no such triggers.
func (b *bench) ignoreLetters() (end func()) {
	b.Helper()
	if b.database.Dialect == postbox.SQLite {
		b.exec("CREATE TRIGGER ignored BEFORE INSERT ON postbox_dead_letters BEGIN SELECT RAISE(IGNORE); END")
		return func() { b.exec("DROP TRIGGER ignored") }
	}
	b.exec("CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
	b.exec("CREATE TRIGGER ignored BEFORE INSERT ON postbox_dead_letters FOR EACH ROW EXECUTE FUNCTION ignored()")
	return func() { b.exec("DROP TRIGGER ignored ON postbox_dead_letters") }
}

// An operator buries a message, and the database does not store the dead letter.
func TestOperator_G2_a_message_whose_dead_letter_is_not_stored_stays(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		if database.Dialect == postbox.MySQL {
			return // a trigger there can only raise an error
		}
		b := newBench(t, database)
		b.append(draft("one", "orders", "k"))
		end := b.ignoreLetters()
		id := int64(database.Count(t, "SELECT id FROM postbox_messages"))
		require.ErrorIs(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: id}, "of no use")), spool.ErrNoLetter)
		require.Equal(t, 1, b.pending())
		end()
		require.NoError(t, errorOf(b.admin.Bury(t.Context(), admin.Filter{Target: b.target, ID: id}, "of no use")))
		require.Zero(t, b.pending())
		require.Equal(t, 1, b.dead())
	})
}
