package command_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// history writes messages of the history of the queue.
func (b *bench) history(n int) {
	b.Helper()
	id, err := b.queue.Open(b.Context(), b.database.DB)
	require.NoError(b, err)
	metadata, err := spool.EncodeMetadata(map[string]string{"postbox_topic": "orders"})
	require.NoError(b, err)
	for i := 1; i <= n; i++ {
		b.database.Exec(b.T, `INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
			VALUES (?, ?, 'fraud', ?, ?, ?, ?, ?, ?, 1)`, i, id, fmt.Appendf(nil, "h-%03d", i), []byte("customer-1"), []byte("{}"), metadata, i, written.UnixMicro())
	}
}

func TestReplay_stopped_in_the_middle_says_how_to_go_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.history(250)
		first := b.stopped("100 messages replayed so far", "replay", "--queue", "fraud", "--all", "--yes")
		require.Equal(t, command.ExitStopped, first.code, first.err)
		cursor := regexp.MustCompile(`to go on, add --after (\S+)`).FindStringSubmatch(first.err)
		require.Len(t, cursor, 2, first.err)
		require.Contains(t, b.ok("audit"), "up to cursor "+cursor[1])
		require.Equal(t, "150 messages replayed.\n", b.ok("replay", "--queue", "fraud", "--all", "--yes", "--after", cursor[1]))
		require.Equal(t, 250, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
		require.Equal(t, 250, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
	})
}

// A replay that goes on from the wrong place copies messages a second time.
func TestReplay_that_does_not_know_what_was_committed_points_to_the_audit_log(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.history(2)
	db, gate := b.database.OpenGated(t)
	ctx, stop := context.WithCancel(t.Context())
	commits := 0
	gate.AtCommit(func(commit func() error) error {
		if commits++; commits == 1 { // of the row in the audit log
			return commit()
		}
		gate.Shut()
		stop() // it asks for a few seconds more
		return driver.ErrBadConn
	})
	options := command.Options{Open: func(command.OpenParams) (*sql.DB, error) { return db, nil }}
	r := execute(ctx, options, b.environment(), "replay", "--queue", "fraud", "--all", "--yes")
	require.Contains(t, r.err, `after 0 messages, and perhaps up to 100 more: to go on, take the cursor from "postbox audit", and add it as --after`)
	require.NotEqual(t, command.ExitOK, r.code)
}

func TestReplay_asks_and_checks(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.history(2)
	r := b.run("replay", "--queue", "fraud")
	require.Equal(t, command.ExitUsage, r.code)
	require.Contains(t, r.err, "no messages are chosen")
	for _, window := range []string{"1h", "7d"} { // which moves on, while the replay is interrupted
		r = b.run("replay", "--queue", "fraud", "--done-after", window, "--after", "3-2-2-1")
		require.Equal(t, command.ExitUsage, r.code)
		require.Contains(t, r.err, "is another time now")
	}
	question := b.answer("n\n", "replay --queue fraud --key customer-1 --to-outbox outbox")
	require.Equal(t, command.ExitStopped, question.code)
	require.Contains(t, question.err, `history of the queue "fraud", messages of --key "customer-1"`)
	require.Contains(t, question.err, `Let 2 messages be handled again by the outbox "outbox"?`)
	require.Regexp(t, `^\{"action":"replay","done":2,"skipped":0,"stopped":false,"cursor":"3-2-2-\d+"\}\n$`,
		b.ok("replay", "--queue", "fraud", "--key", "customer-1", "--to-outbox", "outbox", "--new-ids", "--yes", "-o", "json"))
	require.Equal(t, 3, b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'orders' AND ordering_key = ?", []byte("customer-1")), "with m-1")
	require.Zero(t, b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ?", []byte("h-001")), "they have new ids")
}
