package command_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// An operator asks which message has a unique key, or which unique key a message has.
func TestMessagesShow_with_a_unique_key(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	d := draft("u-1", "statements", "customer 7")
	d.UniqueKey = d.Key
	_, err := b.outbox.AppendUnique(t.Context(), b.database.DB, spool.Unprepared, []spool.Draft{d})
	require.NoError(t, err)

	found := b.ok("messages", "show", "--topic", "statements", "--unique-key", "customer 7")
	require.Contains(t, found, "u-1")
	require.Regexp(t, `Unique key: +'customer 7'\n`, found)
	require.Equal(t, found, b.ok("messages", "show", "1"))
	require.Contains(t, b.ok("messages", "show", "1", "-o", "json"), `"unique_key":"customer 7"`)

	for want, args := range map[string][]string{
		"not found": {"--topic", "orders", "--unique-key", "customer 7"},
		"no message is named: give its ID, or --unique-key and --topic": {},
		"--unique-key: leave out the ID 1":                              {"1", "--topic", "statements", "--unique-key", "customer 7"},
		"unique-key":                                                    {"--topic", "statements"},
		"has no unique keys: name an outbox":                            {"--queue", "fraud", "--topic", "statements", "--unique-key", "customer 7"},
	} {
		r := b.run(append([]string{"messages", "show"}, args...)...)
		require.NotEqual(t, command.ExitOK, r.code)
		require.Contains(t, r.err, want)
	}
}
