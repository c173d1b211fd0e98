package command_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// incident is a queue in which one message is parked, one waits for its next attempt, and a key is
// paused, with one live and one crashed process.
func incident(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.queue, draft("m-1", "fraud", "customer-1"), draft("m-2", "fraud", "customer-2"), draft("m-3", "fraud", "customer-1"),
		draft("m-4", "fraud", "customer-3"), draft("m-5", "fraud", "customer-1"), draft("m-6", "fraud", ""))
	b.database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 5, available_at = ? WHERE id = 1", int64(dialect.ParkedFrom))
	b.database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = ? WHERE id = 2", written.Add(time.Hour).UnixMicro())
	b.failure(1, "card declined", time.Minute)
	b.failure(1, "card declined\nagain", 5*time.Minute)
	b.failure(2, "connection refused", 2*time.Minute)
	require.NoError(t, b.admin().Pause(t.Context(), admin.Filter{Target: admin.Queue("fraud"), Key: "customer-3"}))

	id := int64(b.database.Count(t, "SELECT id FROM postbox_spools"))
	b.exec(b.statements.FillLanes(id))
	b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: "host 42"}, InFlight: spool.Heartbeat{InFlight: map[string]int{"fraud": 2}}.Encode(), TTL: time.Hour.Microseconds()}))
	b.database.Exec(t, "DELETE FROM postbox_lanes WHERE lane > 3") // for short lists
	b.database.Exec(t, "UPDATE postbox_lanes SET holder = 'host 42', token = 7 WHERE lane < 2")
	b.database.Exec(t, "INSERT INTO postbox_members (spool, holder, in_flight, expires_at) VALUES (?, 'host 41', '{}', ?)", id, written.UnixMicro())
	b.database.Exec(t, "UPDATE postbox_lanes SET holder = 'host 41', token = 5, suspect = 1 WHERE lane = 2")
	return b
}

// Nothing else tells why these messages are late: a process runs, and no topic is away.
func TestCheck_tells_of_stuck_keys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		waits := draft("m-1", "fraud", "customer-1")
		waits.Delay = time.Hour
		b.append(b.queue, waits, draft("m-2", "fraud", "customer-1"))
		id := int64(database.Count(t, "SELECT id FROM postbox_spools"))
		b.exec(b.statements.FillLanes(id))
		b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: "host 42"}, InFlight: "{}", TTL: time.Hour.Microseconds()}))
		const told = `See: postbox keys stuck --queue fraud`
		r := b.run("check")
		require.Equal(t, command.ExitFound, r.code)
		require.NotContains(t, r.err, told)

		database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1 WHERE message_id = ?", []byte("m-1"))
		r = b.run("check")
		require.Equal(t, command.ExitFound, r.code)
		require.Contains(t, r.err, `; queue "fraud" has 1 stuck key, the first for `)
		require.Contains(t, r.err, told)
		require.Contains(t, b.run("drain", "--timeout", "0s").err, told)
	})
}

// failure records a failed attempt of a message, so long after it was written.
func (b *bench) failure(id int64, text string, after time.Duration) {
	b.Helper()
	subject := spool.MessageSubject(id, written.UnixMicro())
	b.exec(b.statements.InsertFailure(dialect.Failure{Subject: subject, Attempt: 1, Error: text, Process: "host 42"}))
	b.database.Exec(b.T, "UPDATE postbox_failures SET failed_at = ? WHERE id = (SELECT MAX(id) FROM postbox_failures)", written.Add(after).UnixMicro())
}

func TestOutput_in_an_incident(t *testing.T) {
	t.Parallel()
	eachOutput(t, incident, map[string]string{
		"keys-stuck":       "keys stuck --queue fraud",
		"keys-stuck-limit": "keys stuck --queue fraud --limit 1",
		"messages-error":   "messages list --queue fraud --error refused --min-attempts 1",
		"lanes":            "lanes --queue fraud",
		"lanes-members":    "lanes --queue fraud --members",
	})
}
