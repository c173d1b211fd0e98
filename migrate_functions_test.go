package postbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A tool like psql goes on after an error, so a script that is executed again must not touch what
// is there.
func TestWriteMigrations_G2_a_second_run_keeps_all_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		var text strings.Builder
		require.NoError(t, postbox.WriteMigrations(&text, database.Postbox(), 0))
		database.RunScript(t, text.String())
		publishReadyAndDelayed(t, database.Postbox(), time.Hour)
		for _, statement := range testdb.ScriptStatements(t, text.String()) {
			_, _ = database.DB.ExecContext(t.Context(), statement) // as a tool that goes on
		}
		require.Equal(t, 2, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// publishReadyAndDelayed commits a message that is ready and one that waits for its time.
func publishReadyAndDelayed(t *testing.T, db postbox.Database, wait time.Duration) {
	t.Helper()
	publisher, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	delayed := message.NewMessage("delayed", nil)
	delay.Message(delayed, delay.For(wait))
	require.NoError(t, publisher.Publish("topic", message.NewMessage("ready", nil), delayed))
}

// The functions of PostgreSQL name their tables. In a schema that was renamed, or a copy of one,
// they would work on the tables of another service, or on none.
func TestMigrate_mends_functions_that_do_not_work_on_its_tables(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, database *testdb.Database, schema string){
		"renamed": func(t *testing.T, database *testdb.Database, schema string) {
			t.Helper()
			database.Exec(t, `CREATE SCHEMA "`+schema+`_before"`)
			shop := database.Postbox()
			shop.Schema = schema + "_before"
			require.NoError(t, postbox.Migrate(t.Context(), shop))
			database.Exec(t, `ALTER SCHEMA "`+schema+`_before" RENAME TO "`+schema+`"`)
		},
		"a copy beside its original": func(t *testing.T, database *testdb.Database, schema string) {
			t.Helper()
			database.Exec(t, `CREATE SCHEMA "`+schema+`"`)
			shop := database.Postbox()
			shop.Schema = schema
			require.NoError(t, postbox.Migrate(t.Context(), shop))
			database.Exec(t, `ALTER SCHEMA "`+schema+`" RENAME TO "`+schema+`_copy"`)
			t.Cleanup(func() { _, _ = database.DB.Exec(`DROP SCHEMA "` + schema + `_original" CASCADE`) }) //nolint:noctx // the test's context is over
			database.Exec(t, `CREATE SCHEMA "`+schema+`"`)
			require.NoError(t, postbox.Migrate(t.Context(), shop))
			database.Exec(t, `ALTER SCHEMA "`+schema+`" RENAME TO "`+schema+`_original"`)
			database.Exec(t, `ALTER SCHEMA "`+schema+`_copy" RENAME TO "`+schema+`"`)
			database.Exec(t, `CREATE OR REPLACE FUNCTION "`+schema+`".postbox_stuck(of_spool integer, most bigint) RETURNS SETOF "`+schema+`".postbox_waiting LANGUAGE plpgsql STABLE ROWS 16
				AS $$ BEGIN RETURN QUERY SELECT w.* FROM "`+schema+`_original".postbox_waiting w WHERE w.spool = of_spool LIMIT most; END $$`)
		},
		"dropped": func(t *testing.T, database *testdb.Database, schema string) {
			t.Helper()
			database.Exec(t, `CREATE SCHEMA "`+schema+`"`)
			shop := database.Postbox()
			shop.Schema = schema
			require.NoError(t, postbox.Migrate(t.Context(), shop))
			database.Exec(t, `DROP FUNCTION "`+schema+`".postbox_due`)
		},
		"made without a schema": func(t *testing.T, database *testdb.Database, schema string) {
			t.Helper()
			database.Exec(t, `CREATE SCHEMA "`+schema+`"`)
			var text strings.Builder
			require.NoError(t, postbox.WriteMigrations(&text, database.Postbox(), 0))
			_, err := database.DB.ExecContext(t.Context(), `SET LOCAL search_path TO "`+schema+`"; `+text.String())
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.Postgres(t)
			schema := "Functions_" + postbox.NewMessageID()[:8] + postbox.NewMessageID()[30:]
			t.Cleanup(func() { _, _ = database.DB.Exec(`DROP SCHEMA "` + schema + `" CASCADE`) }) //nolint:noctx // the test's context is over
			damage(t, database, schema)
			shop := database.Postbox()
			shop.Schema = schema
			broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
			t.Cleanup(func() { require.NoError(t, broker.Close()) })

			f, err := forwarder.New(shop, broker, forwarder.Config{}, nil)
			require.NoError(t, err)
			refused, end := context.WithTimeout(t.Context(), 30*time.Second)
			defer end()
			require.ErrorContains(t, f.Run(refused), "call postbox.Migrate")

			require.NoError(t, postbox.Migrate(t.Context(), shop))
			publishReadyAndDelayed(t, shop, time.Millisecond)
			f, err = forwarder.New(shop, broker, forwarder.Config{}, nil)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- f.Run(ctx) }()
			defer func() {
				cancel()
				require.NoError(t, <-ended)
			}()
			published, err := broker.Subscribe(t.Context(), "topic")
			require.NoError(t, err)
			for range 2 {
				select {
				case msg := <-published:
					msg.Ack()
				case <-time.After(30 * time.Second):
					t.Fatal("a message is not published")
				}
			}
			require.Eventually(t, func() bool {
				return database.Count(t, `SELECT COUNT(*) FROM "`+schema+`".postbox_messages`) == 0
			}, 30*time.Second, 10*time.Millisecond)
		})
	}
}
