package command_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// inOldLanes changes the number of lanes of the outbox as a command does that is then interrupted. A process holds the old lanes until its lease ends.
func (b *bench) inOldLanes(lease time.Duration) {
	b.Helper()
	id := b.outboxID()
	b.exec(b.statements.FillLanes(id, b.outbox.Layout()))
	b.database.Exec(b.T, "UPDATE postbox_lanes SET holder = 'host 42', token = 7, expires_at = ?", time.Now().Add(lease).UnixMicro())
	b.database.Exec(b.T, "UPDATE postbox_spools SET first_lane = ? WHERE id = ?", spool.MaxLanes, id)
}

func TestLanesSet_says_for_what_it_waits(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.inOldLanes(8 * time.Second)
	require.Contains(t, b.ok("queues"), "moving to new lanes")
	found := b.findings()["lanes"]
	require.Len(t, found, 1)
	require.Contains(t, found[0], `problem: the number of lanes of outbox "outbox" was changed, and no message is handed out`)
	require.Contains(t, found[0], "postbox lanes --outbox outbox shows who holds the old lanes")
	b.inOldLanes(5 * time.Second)
	r := b.run("lanes", "set", "4", "--yes") // the number that it has: it only moves
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Contains(t, r.err, "Waiting: no message is handed out until those in old lanes are moved: their lanes are held by host 42")
	require.Contains(t, r.out, `The outbox "outbox" has 4 lanes, and no message is in an old one. This command has moved 4 messages`)
	require.NotContains(t, b.ok("queues"), "moving to new lanes")
}

// A question whose answer cannot matter is not asked.
func TestLanesSet_checks_the_number_and_the_name_before_it_asks(t *testing.T) {
	t.Parallel()
	b := shop(t)
	for args, says := range map[string]string{
		"lanes set 300":                    "the number of lanes 300 is not between 1 and 256",
		"lanes set 0":                      "the number of lanes 0 is not between 1 and 256",
		"lanes set many":                   `the number of lanes "many" is not a number`,
		"lanes set 8 --outbox elsewhere":   `outbox "elsewhere"`,
		"lanes set 8 --queue inbox-of-one": `queue "inbox-of-one"`,
	} {
		r := b.answer("y\n", args)
		require.NotEqual(t, command.ExitOK, r.code, args)
		require.Contains(t, r.err, says)
		require.NotContains(t, r.err, "[y/N]", args)
	}
}

func TestLanesSet_names_the_rights_that_are_missing(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	_, role := b.role("SELECT, UPDATE (version, paused_at, settings) ON postbox_spools", "SELECT, INSERT, UPDATE ON postbox_lanes",
		"SELECT ON postbox_messages", "SELECT ON postbox_waiting", "SELECT ON postbox_members")
	r := role.answer("y\n", "lanes set 8")
	require.Equal(t, command.ExitError, r.code, r.err)
	require.NotContains(t, r.err, "[y/N]", "it is not asked what cannot be done")
	for _, grant := range []string{"UPDATE (first_lane, lanes) ON postbox_spools", "DELETE ON postbox_lanes", "UPDATE (lane) ON postbox_messages"} {
		require.Contains(t, r.err, "GRANT "+grant+" TO …; all grants are under the role operator of lanes in docs/security.md")
	}
	require.NotContains(t, r.err, "GRANT INSERT")
	require.Equal(t, 4, b.database.Count(t, "SELECT lanes FROM postbox_spools"))
}
