package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Each line of "dead groups" is what --like with its example lists and acts on.
func TestDead_like_takes_a_group_and_nothing_else(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for i := range 3 {
			b.letter(fmt.Sprintf("a-%d", i), "orders", fmt.Sprintf("order %d: HTTP 503", 4711+i))
			b.letter(fmt.Sprintf("b-%d", i), "orders", fmt.Sprintf("order %d: HTTP 404", 4711+i))
		}
		b.letter("c", "refunds", "order 4711: HTTP 503")
		for _, line := range strings.Split(strings.TrimSpace(b.ok("dead", "groups", "--error", "HTTP", "-o", "jsonl")), "\n") {
			var example, n int
			_, of, _ := strings.Cut(line, `"example":`)
			_, err := fmt.Sscanf(of, "%d", &example)
			require.NoError(t, err, line)
			_, err = fmt.Sscanf(line, `{"count":%d`, &n)
			require.NoError(t, err, line)
			require.Equal(t, n, strings.Count(b.ok("dead", "list", "--error", "HTTP", "--like", fmt.Sprint(example), "-o", "jsonl"), "\n"), line)
		}
		like := fmt.Sprint(7) // the letter of refunds
		r := b.run("dead", "delete", "--like", like, "--topic", "orders", "--yes")
		require.Equal(t, command.ExitUsage, r.code)
		require.Contains(t, r.err, "another flag asks for something else")
		require.Contains(t, b.ok("dead", "delete", "--like", "1", "--yes"), "3 dead letters deleted")
		require.NotContains(t, b.ok("dead", "list", "--topic", "orders"), "503")
		require.Contains(t, b.ok("dead", "resolve", "--like", "2", "--reason", "gone", "--limit", "2", "--yes"), "2 dead letters resolved")
		require.Equal(t, 2, strings.Count(b.ok("dead", "list", "-o", "jsonl"), "\n"))
		require.Contains(t, b.run("dead", "requeue", "--like", "1", "--yes").err, "not found")
	})
}
