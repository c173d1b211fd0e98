package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A message that waits among the ready ones, and does not arrive where such messages wait, stays
// where it is until it does.
func TestDrainer_does_not_lose_a_message_that_a_trigger_keeps_out_of_the_waiting_table(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	b.Append(database.DB, draft("stray", "k"))
	database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1")
	end := b.ignore("INSERT", "postbox_waiting", "NEW.attempts = 1")
	handler := &recorder{}
	log := b.startLogged(database.DB, handler, config("one"))
	b.Eventually(func() bool { return log.Said("Postbox is blocked") > 0 }, "it does not arrive")
	require.Equal(t, 1, b.Pending())
	end()
	b.Eventually(func() bool { return handler.tried("stray") == 1 && b.Pending() == 0 }, "it is done in the end")
}

// An operator buries a message, and the database does not store the dead letter.
func TestOperator_G2_a_message_whose_dead_letter_is_not_stored_stays(t *testing.T) {
	t.Parallel()
	eachThatIgnores(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("one", "k"))
		end := b.ignore("INSERT", "postbox_dead_letters", "NEW.topic = 'orders'")
		operator, err := admin.New(database.Postbox(), admin.Config{}, watermill.NopLogger{})
		require.NoError(t, err)
		id := int64(database.Count(t, "SELECT id FROM postbox_messages"))
		require.ErrorIs(t, errorOf(operator.Bury(t.Context(), admin.Filter{Target: admin.Outbox(b.Spool.Name()), ID: id}, "of no use")), spool.ErrNoLetter)
		require.Equal(t, 1, b.Pending())
		end()
		require.NoError(t, errorOf(operator.Bury(t.Context(), admin.Filter{Target: admin.Outbox(b.Spool.Name()), ID: id}, "of no use")))
		require.Zero(t, b.Pending())
		require.Equal(t, 1, b.Dead())
	})
}
