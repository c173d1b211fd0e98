package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refuseStart lets the database refuse to count the start of the message "bad". What it returns
// ends that.
func (b *bench) refuseStart(kind refusal) (end func()) {
	b.T.Helper()
	table := ""
	switch b.Database.Dialect {
	case postbox.PostgreSQL:
		table = " ON postbox_messages"
		body := map[refusal]string{
			conflicts: "RAISE EXCEPTION 'Konflikt' USING ERRCODE = '40001';", forbids: "RAISE EXCEPTION 'verboten';",
		}[kind]
		b.Database.Exec(b.T, "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+body+" END $$")
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_messages FOR EACH ROW WHEN (NEW.starts > OLD.starts AND OLD.message_id = 'bad') EXECUTE FUNCTION refuse()")
	case postbox.MySQL:
		signal := map[refusal]string{
			conflicts: "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Konflikt'", forbids: "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'verboten'",
		}[kind]
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_messages FOR EACH ROW IF NEW.starts > OLD.starts AND OLD.message_id = 'bad' THEN "+signal+"; END IF")
	case postbox.SQLite:
		b.Database.Exec(b.T, "CREATE TRIGGER refuse BEFORE UPDATE ON postbox_messages WHEN NEW.starts > OLD.starts AND OLD.message_id = CAST('bad' AS BLOB) BEGIN SELECT RAISE(ABORT, 'verboten'); END")
	}
	return func() { b.Database.Exec(b.T, "DROP TRIGGER refuse"+table) }
}

// A suspect whose start cannot be counted is not handled, and tried again after longer and longer
// pauses. Its key waits, and the others go on. When its start can be counted, it is.
func TestDrainer_F5_a_suspect_whose_start_cannot_be_counted_waits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, kind := range refusals[database.Dialect] {
			t.Run(string(kind), func(t *testing.T) {
				b := newBench(t, database)
				b.Append(database.DB, draft("bad", "k"), draft("behind", "k"), draft("other", "another key"))
				first := newStanding()
				p := b.spawn("first", first.of, single)
				signal(t, first.entered, "something is handled")
				p.kill()

				_, err := database.DB.ExecContext(t.Context(), database.Bind("UPDATE postbox_messages SET starts = 1 WHERE message_id = ?"), []byte("bad"))
				require.NoError(t, err)
				starts := func() int {
					return database.Count(t, "SELECT starts FROM postbox_messages WHERE message_id = ?", []byte("bad"))
				}
				end := b.refuseStart(kind)
				counted := 0 // starts of the message while it is handled
				second := &recorder{do: func(m *spool.Message) error {
					if m.MessageID == "bad" {
						counted = starts()
					}
					return nil
				}}
				log := b.startLogged(database.DB, second, config("second"))
				b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 && second.tried("other") == 1 }, "it is said, and the others go on")
				require.Zero(t, second.tried("bad"))
				require.Zero(t, second.tried("behind"))
				require.NotZero(t, b.markedLanes(), "it is still suspected")
				require.Equal(t, 1, starts(), "an earlier start is not taken back for one that was not counted")
				end()
				b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
				require.Equal(t, 1, second.tried("bad"))
				require.Equal(t, 2, counted)
				b.Eventually(func() bool { return b.markedLanes() == 0 }, "nothing is suspected any more")
			})
		}
	})
}
