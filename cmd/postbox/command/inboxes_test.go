package command_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// received writes messages that the inboxes of the consumer billing have handled. Of the first one,
// the history has not kept all.
func (b *bench) received(n int) {
	b.Helper()
	id, err := spool.New(b.statements, spool.InboxName("billing")).Open(b.Context(), b.database.DB)
	require.NoError(b, err)
	metadata, err := spool.EncodeMetadata(map[string]string{"about": "orders"})
	require.NoError(b, err)
	for i := 1; i <= n; i++ {
		omitted := 0
		if i == 1 {
			omitted = 70_000
		}
		b.database.Exec(b.T, `INSERT INTO postbox_history (id, spool, topic, message_id, source_topic, ordering_key, payload, metadata, created_at, done_at, attempts, omitted)
			VALUES (?, ?, 'orders', ?, 'orders', ?, ?, ?, ?, ?, 0, ?)`, i, id, fmt.Appendf(nil, "r-%03d", i), fmt.Appendf(nil, "customer-%d", i%2), []byte("{}"), metadata,
			written.UnixMicro(), written.Add(time.Duration(i)*time.Second).UnixMicro(), omitted)
	}
}

// consumer is the shop with the history of an inbox.
func consumer(t *testing.T) *bench {
	t.Helper()
	b := shop(t)
	b.received(3)
	require.NoError(t, storeSettings(admin.ContextWithActor(t.Context(), "ada@office"), b.admin(), admin.Inbox("billing"), admin.Settings{History: time.Hour}))
	return b
}

func TestOutput_of_inboxes(t *testing.T) {
	t.Parallel()
	eachOutput(t, consumer, map[string]string{
		"inboxes":        "inboxes",
		"inbox-list":     "messages list --inbox billing --done",
		"inbox-filter":   "messages list --inbox billing --done --key customer-1 --done-before 2026-01-02T03:04:06.5Z",
		"inbox-limit":    "messages list --inbox billing --done --limit 1",
		"inbox-show":     "messages show 1 --inbox billing",
		"inbox-set":      "set --inbox billing --history 7d --yes",
		"inbox-audit":    "audit --inbox billing",
		"inbox-drain":    "drain --timeout 0s",
		"inbox-pending":  "messages list --inbox billing",
		"inbox-unknown":  "set --inbox nope",
		"inbox-nowhere":  "replay --inbox billing --all --yes",
		"inbox-two":      "replay --inbox billing --all --to-queue fraud --to-outbox outbox --yes",
		"inbox-settings": "set --inbox billing --page-size 5",
	})
}

func TestReplay_of_received_messages_asks_and_puts_them_where_they_are_handled(t *testing.T) {
	t.Parallel()
	b := consumer(t)
	for args, question := range map[string]string{
		"--all --to-outbox outbox":                              `Let 3 messages be handled again by the outbox "outbox"?`,
		"--key customer-1 --to-queue fraud":                     `Let 2 messages be handled again by the queue "fraud"?`,
		"--all --limit 1 --to-queue fraud":                      `Let 1 message be handled again by the queue "fraud"?`,
		"--all --after 3-1-1-1767323045000000 --to-queue fraud": `Let the messages that are left be handled again by the queue "fraud"?`,
	} {
		r := b.answer("n\n", "replay --inbox billing "+args)
		require.Equal(t, command.ExitStopped, r.code, args)
		require.Contains(t, r.err, question)
		require.Contains(t, r.err, `history of the inbox "billing", messages of --`)
	}
	require.Contains(t, b.ok("replay", "--inbox", "billing", "--topic", "none", "--to-queue", "fraud"), "0 messages replayed.", "nothing to ask")

	require.Equal(t, "2 messages replayed.\n1 message is not replayed: the history has kept only a part, the metadata cannot be decoded, or the retention is over.\n",
		b.ok("replay", "--inbox", "billing", "--all", "--to-queue", "fraud", "--yes"))
	require.Equal(t, 2, strings.Count(b.ok("messages", "list", "--queue", "fraud"), " r-00"))
	require.Equal(t, "1 message replayed.\n", b.ok("replay", "--inbox", "billing", "--message-id", "r-002", "--to-outbox", "outbox", "--to-topic", "again", "--new-ids", "--yes"))
	require.NotContains(t, b.ok("messages", "list", "--topic", "again"), "r-002")
	require.Contains(t, b.ok("audit", "--inbox", "billing", "--action", "replay", "-o", "json"), `"target":{"kind":"inbox","name":"billing"}`)
}

func TestReplay_of_received_messages_goes_on_after_an_interruption(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.queue, draft("m-1", "fraud", "k"))
	b.received(250)
	b.database.Exec(t, "UPDATE postbox_history SET omitted = 0")
	args := []string{"replay", "--inbox", "billing", "--all", "--to-queue", "fraud", "--yes"}
	first := b.stopped("100 messages replayed so far", args...)
	require.Equal(t, command.ExitStopped, first.code, first.err)
	cursor := regexp.MustCompile(`to go on, add --after (\S+)`).FindStringSubmatch(first.err)
	require.Len(t, cursor, 2, first.err)
	require.Equal(t, "150 messages replayed.\n", b.ok(append(args, "--after", cursor[1])...))
	require.Equal(t, 251, b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "with m-1")
	require.Equal(t, 251, b.database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_messages"))
}
