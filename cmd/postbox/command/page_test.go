package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// The list of docs/cli.md is made from the command tree, and this test fails if it is stale.
func TestPage_docs_list_each_command(t *testing.T) {
	t.Parallel()
	golden(t, "../../../docs/cli.md", page(t, command.New(command.Options{})))
}

// The tasks, which are written by hand, stand around the list of the commands.
const (
	pageBegins = "<!-- commands: begin -->\n"
	pageEnds   = "<!-- commands: end -->\n"
)

// page is the page as it is, with a line for each command that does something.
func page(t *testing.T, root *cobra.Command) string {
	t.Helper()
	written, err := os.ReadFile("../../../docs/cli.md")
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(written), pageBegins)
	require.True(t, found)
	_, after, found := strings.Cut(rest, pageEnds)
	require.True(t, found)
	var list strings.Builder
	list.WriteString("| command | what it does |\n| --- | --- |\n")
	eachCommand(root, func(cmd *cobra.Command) {
		group := cmd.HasSubCommands() && cmd.Name() != "lanes" // which does something by itself, too
		if usage := strings.TrimSuffix(cmd.UseLine(), " [flags]"); cmd.HasParent() && !group {
			fmt.Fprintf(&list, "| `%s` | %s |\n", strings.ReplaceAll(usage, "|", `\|`), cmd.Short)
		}
	})
	return before + pageBegins + list.String() + pageEnds + after
}

// eachCommand visits the command and all below it.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			eachCommand(child, visit)
		}
	}
}
