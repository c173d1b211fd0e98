package command_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestCalls_that_may_hang_are_shown_with_their_process_and_message(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	id, err := b.queue.Open(t.Context(), b.database.DB)
	require.NoError(t, err)
	running := func(process string, since time.Time, message int64) {
		beat := spool.Heartbeat{InFlight: map[string]int{"fraud": 1}, LongCall: &spool.Call{Since: since, Topic: "fraud", ID: message, MessageID: "m-" + process}}
		b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: process}, InFlight: beat.Encode(), TTL: time.Hour.Microseconds()}))
	}
	running("host-1", time.Now().Add(-30*time.Second), 11)
	require.Regexp(t, `(?m)^queue fraud .* 3\d(\.\d+)?s +0 `, b.ok("queues"))
	require.Empty(t, b.findings()["calls"], "30 s are not long")

	running("host-2", time.Now().Add(-2*time.Hour), 12)
	require.Contains(t, b.ok("queues", "-o", "json"), `"process":"host-2","topic":"fraud","id":12,"message_id":"m-host-2"}`)
	require.Regexp(t, `host-2 .* 2h0m +12`, b.ok("lanes", "--queue", "fraud", "--members"))
	found := b.findings()["calls"]
	require.Len(t, found, 1)
	require.Contains(t, found[0], `notice: queue "fraud" may hang: a call in process host-2 has not returned since `)
	require.Contains(t, found[0], "with message 12")
	require.Contains(t, found[0], "give the call a time-out")

	b.append(b.queue, draft("m-host-2", "fraud", "customer"))
	r := b.run("check", "--max-age", "1h")
	require.Equal(t, command.ExitFound, r.code)
	require.Contains(t, r.err, `messages have been due for more than 1h0m0s in 1 outbox or queue; queue "fraud" may hang: a call in process host-2 has not returned since `)
}
