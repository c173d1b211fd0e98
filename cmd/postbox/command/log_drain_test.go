package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A process reads the log and cannot store what it has read. Nothing moves, and the log is not empty.
func TestDrain_waits_until_the_log_was_read_up_to_its_end(t *testing.T) {
	t.Parallel()
	b := logBench(t)
	skipBefore14(b)
	b.logLines(command.ExitOK, "log", "setup", "--without-rows")
	reader, err := pgtail.NewOutbox(pgtail.OutboxConfig{DSN: b.database.DSN})
	require.NoError(t, err)
	stop := b.reading(forwarder.Config{Tail: reader})
	outbox, err := forwarder.NewPublisher(b.database.Postbox(), forwarder.PublisherConfig{Log: true, AllowAutocommit: true}, nil)
	require.NoError(t, err)
	require.NoError(t, outbox.Publish("orders", message.NewMessage("first", nil)))
	require.Contains(t, b.ok("drain"), "yes")
	position := func() int { return b.database.Count(t, "SELECT position FROM postbox_log_position") }
	before := position()
	require.Contains(t, b.ok("drain"), "yes", "the position of an idle reader moves for it")
	require.Greater(t, position(), before)

	b.ok("topics", "pause", "orders") // its messages get rows
	lock, err := b.database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.ExecContext(t.Context(), "LOCK TABLE postbox_messages IN EXCLUSIVE MODE")
	require.NoError(t, err)
	require.NoError(t, outbox.Publish("orders", message.NewMessage("waits", nil)))
	r := b.run("drain", "--timeout", "8s")
	require.Equal(t, command.ExitFound, r.code, "%s%s", r.out, r.err)
	require.Contains(t, r.err, "messages may wait in the log")
	require.NoError(t, lock.Rollback())
	require.Eventually(t, func() bool { return b.database.Count(t, "SELECT COUNT(*) FROM postbox_messages") == 1 }, logPatience, testdb.PollPause)
	require.Equal(t, command.ExitFound, b.run("drain", "--timeout", "0s").code, "the message has a row now")
	b.ok("topics", "resume", "orders")
	require.Contains(t, b.ok("drain"), "yes")
	stop()
}
