package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// docs/cli.md is made from the command tree, and this test fails if it is stale.
func TestPage_docs_describe_each_command_and_flag(t *testing.T) {
	t.Parallel()
	golden(t, "../../../docs/cli.md", page(command.New(command.Options{})))
}

const pageBegin = `# The command line

The program ` + "`postbox`" + ` shows outboxes, queues and dead letters, acts on them, and migrates the tables. It has the drivers lib/pq, go-sql-driver/mysql and modernc.org/sqlite in it:

    go install github.com/postbox-go/watermill-postbox/cmd/postbox@latest

Until the first version is released, run ` + "`go install`" + ` in the folder ` + "`cmd/postbox`" + ` of a clone instead.

For another driver, or to make it a part of a tool of your own, use the package [command](../cmd/postbox/command/doc.go). [Security](security.md#operator) has the rights that it needs.

This page is made from the program: ` + "`go test -C cmd/postbox ./command -update`" + ` writes it. The flags of the first command work with all.
`

func page(root *cobra.Command) string {
	var text strings.Builder
	text.WriteString(pageBegin + "\n")
	eachCommand(root, func(cmd *cobra.Command) {
		fmt.Fprintf(&text, "- [%s](#%s): %s\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	})
	eachCommand(root, func(cmd *cobra.Command) {
		fmt.Fprintf(&text, "\n## %s\n\n```text\n%s\n", cmd.CommandPath(), cmd.Long)
		if !cmd.HasSubCommands() {
			fmt.Fprintf(&text, "\nUsage:\n  %s\n", cmd.UseLine())
		}
		if flags := cmd.LocalFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(&text, "\nFlags:\n%s", flags)
		}
		text.WriteString("```\n")
	})
	return text.String()
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
