package sources

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
)

// delayedQueues are the tables that DelayedPostgreSQLPublisher and DelayedMySQLPublisher of
// watermill-sql v4.1.2 make.
var delayedQueues = map[postbox.Dialect]string{
	postbox.PostgreSQL: `CREATE TABLE IF NOT EXISTS "watermill_events" ("offset" SERIAL PRIMARY KEY, "uuid" VARCHAR(36) NOT NULL, "payload" JSON DEFAULT NULL,
		"metadata" JSON DEFAULT NULL, "acked" BOOLEAN NOT NULL DEFAULT FALSE, "created_at" TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT CURRENT_TIMESTAMP,
		"delayed_until" TIMESTAMP WITH TIME ZONE NULL DEFAULT NULL)`,
	postbox.MySQL: "CREATE TABLE IF NOT EXISTS `watermill_events` (`offset` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, `uuid` VARCHAR(36) NOT NULL, " +
		"`payload` JSON DEFAULT NULL, `metadata` JSON DEFAULT NULL, `acked` BOOLEAN NOT NULL DEFAULT FALSE, " +
		"`created_at` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, `delayed_until` TIMESTAMP NULL DEFAULT NULL)",
}

// On MySQL its rows would be taken for those of an outbox: those that are acked would go out again,
// and those with a delay too early.
func TestTransfer_ends_at_a_queue_of_watermill_sql_v4_and_says_why(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.database.Exec(w.t, delayedQueues[w.database.Dialect])
		w.database.Exec(w.t, w.database.Bind("INSERT INTO watermill_events (uuid, payload, metadata, acked) VALUES ('a', '{}', '{}', TRUE)"))
		logger := watermill.NewCaptureLogger()
		w.transfer(w.database.DB, logger).Run(w.t.Context())
		said := w.errors(logger)
		require.Len(w.t, said, 1)
		require.ErrorIs(w.t, said[0].Err, errForeignTable)
		require.ErrorContains(w.t, said[0].Err, "a queue of watermill-sql v4")
		require.Empty(w.t, w.movedIDs())
	})
}

func TestTransfer_ends_at_a_table_of_another_kind(t *testing.T) {
	t.Parallel()
	eachOldWorld(t, func(w *oldWorld) {
		w.database.Exec(w.t, "CREATE TABLE watermill_events (uuid VARCHAR(36) NOT NULL, payload VARCHAR(36) NOT NULL)")
		logger := watermill.NewCaptureLogger()
		w.transfer(w.database.DB, logger).Run(w.t.Context())
		said := w.errors(logger)
		require.Len(w.t, said, 1)
		require.ErrorContains(w.t, said[0].Err, "it has no column offset, metadata")
	})
}
