package spool_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// On MySQL and MariaDB the values of several messages are part of a statement's text, and those of
// one message are arguments. What is stored is the same, whatever bytes there are and whatever a
// session makes of quotes, backslashes and bytes above 127.
func TestAppend_on_MariaDB_stores_messages_together_as_it_stores_each(t *testing.T) {
	t.Parallel()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	due := time.Date(2100, 1, 2, 3, 4, 5, 6000, time.UTC)
	drafts := []spool.Draft{
		enginetest.Draft("plain", "key"),
		{Topic: "orders", MessageID: "without a key", Payload: []byte{}},
		{Topic: "orders", MessageID: "without a payload"},
		{Topic: "orders", MessageID: string(every), Key: string(every), Payload: every, Metadata: map[string]string{"it's": `\"`}},
		{Topic: `it's "a" \topic\`, MessageID: `'`, Key: `\`, Payload: []byte(`', ''); -- \`)},
		{Topic: "Größe ソ表", MessageID: "ソ", Key: "表\\", Payload: []byte("ソ")},
		{Topic: "orders", MessageID: "later", Due: due},
		{Topic: "orders", MessageID: "delayed", Key: "key", Delay: time.Hour},
	}
	for _, options := range []string{"", "sql_mode='NO_BACKSLASH_ESCAPES'", "sql_mode='ANSI_QUOTES'", "charset=latin1", "charset=sjis", "interpolateParams=true"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			database := testdb.MySQL(t)
			b := enginetest.NewBench(t, database)
			db := database.OpenWith(t, options)
			for _, draft := range drafts {
				b.Append(db, draft)
				b.Append(db, draft, draft)
				alone, together := storedRows(t, database.DB)
				require.Equal(t, []storedRow{alone, alone}, together, "%q", draft.MessageID)
				require.Equal(t, draft.MessageID, alone.MessageID)
				require.Equal(t, string(draft.Payload), alone.Payload.String)
				database.Exec(t, "DELETE FROM postbox_messages")
			}
		})
	}
}

type storedRow struct {
	State, Lane                   int // no lane without a key: each such message gets another
	Hash                          sql.NullInt64
	Topic, MessageID              string
	Key, Payload                  sql.NullString
	Metadata                      string
	Due                           int64 // of a message with a time
	DelayInSeconds                int64 // of one with a delay: the time is that of its statement
	Attempts, AgeBelowThisTestRun int
}

// storedRows returns the message with the lowest id, and the others.
func storedRows(t *testing.T, db *sql.DB) (first storedRow, others []storedRow) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
SELECT state, CASE WHEN key_hash IS NULL THEN 0 ELSE lane END, key_hash, topic, message_id, ordering_key, payload, metadata,
       CASE WHEN state = 1 AND MOD(available_at - created_at, 1000000) <> 0 THEN available_at ELSE 0 END,
       CASE WHEN state = 1 AND MOD(available_at - created_at, 1000000) = 0 THEN (available_at - created_at) DIV 1000000 ELSE 0 END,
       attempts, created_at BETWEEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000 AND TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))
FROM postbox_messages ORDER BY id`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r storedRow
		require.NoError(t, rows.Scan(&r.State, &r.Lane, &r.Hash, &r.Topic, &r.MessageID, &r.Key, &r.Payload, &r.Metadata, &r.Due, &r.DelayInSeconds, &r.Attempts, &r.AgeBelowThisTestRun))
		require.Equal(t, 1, r.AgeBelowThisTestRun)
		others = append(others, r)
	}
	require.NoError(t, rows.Err())
	require.Len(t, others, 3)
	return others[0], others[1:]
}
