package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// With the name of another deployment no command acts on the tables, or shows them as if they were
// the right ones.
func TestDeployment_of_others_is_refused_by_each_command(t *testing.T) {
	t.Parallel()
	b := shop(t)
	b.ok("migrate", "up", "--deployment", "staging", "--yes")
	for _, args := range []string{
		"dead delete --all --yes", "dead resolve 1 --reason x --yes", "dead requeue 1", "dead list", "dead show 1", "pause", "resume",
		"messages list", "messages show 1", "messages bury 1 --reason x --yes", "messages run-now 5", "messages reschedule 5 --at 1h",
		"keys list", "keys pause k", "keys resume k", "set", "set --page-size 5", "queues", "drain --timeout 0s", "check", "migrate up",
	} {
		r := b.run(append(strings.Fields(args), "--deployment", "production")...)
		require.Equal(t, command.ExitError, r.code, "%s: %s", args, r.err)
		require.Contains(t, r.err, "the tables belong to another deployment", args)
		require.Empty(t, r.out, args)
		require.NotContains(t, r.err, "Migrating", args)
	}
	require.Len(t, b.letters(""), 2)
	require.True(t, b.infoOf(admin.Outbox("outbox")).Pause.Since.IsZero())
	b.ok("migrate", "status", "--deployment", "production")
	require.Contains(t, b.run("doctor", "--deployment", "production").out, "deployment  problem")
	b.ok("queues", "--deployment", "staging")
	b.ok("queues")
}

// Tables that are in use get a name only if the operator confirms it: processes without the name
// would not start again.
func TestMigrate_names_existing_tables_after_a_confirmation(t *testing.T) {
	t.Parallel()
	b := shop(t)
	r := b.run("migrate", "up", "--deployment", "staging")
	require.Equal(t, command.ExitUsage, r.code, r.err)
	require.Contains(t, r.err, `Name the tables, which exist and have no name, "staging"?`)
	require.NotContains(t, b.ok("migrate", "up", "-o", "json"), "deployment")

	require.Equal(t, command.ExitStopped, b.answer("n\n", "migrate up --deployment staging").code)
	r = b.answer("y\n", "migrate up --deployment staging")
	require.Equal(t, command.ExitOK, r.code, r.err)
	require.Contains(t, r.out, `The tables are those of the deployment "staging".`)
	require.Contains(t, b.ok("migrate", "up", "--deployment", "staging", "-o", "json"), `"deployment":"staging"`)
	require.Contains(t, b.ok("migrate", "up"), `"staging"`)

	fresh := &bench{T: t, database: testdb.SQLite(t)}
	require.Contains(t, fresh.ok("migrate", "up", "--deployment", "new"), `"new"`, "tables that are just made need no question")
}
