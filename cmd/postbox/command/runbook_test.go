package command_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

// Commands stand between back quotes in the text, and at the beginning of lines in blocks.
var (
	commandSpan = regexp.MustCompile("`(postbox [^`]+)`")
	commandLine = regexp.MustCompile(`(?m)^(?:\$ )?(postbox [^#\n]+)`)
	flagName    = regexp.MustCompile(`^--([a-z-]+)$`)
)

// An operator who copies a command from the runbook does not learn that it was renamed.
func TestRunbook_has_commands_and_flags_that_exist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	commands := 0
	for _, pattern := range []*regexp.Regexp{commandSpan, commandLine} {
		for _, found := range pattern.FindAllStringSubmatch(string(text), -1) {
			if line := found[1]; !strings.HasPrefix(line, "postbox: ") { // an error
				requireCommand(t, line)
				commands++
			}
		}
	}
	require.Greater(t, commands, 40)
}

// requireCommand fails unless a command line is one that the program takes. It does not look at values.
func requireCommand(t *testing.T, line string) {
	t.Helper()
	cmd, _, err := command.New(command.Options{}).Find(strings.Fields(line)[1:])
	require.NoError(t, err, line)
	require.True(t, cmd.Runnable() && !cmd.HasSubCommands(), "%s: there is no such command", line)
	for word := range strings.FieldsSeq(line) {
		if name := flagName.FindStringSubmatch(word); name != nil {
			require.NotNil(t, flagOf(cmd, name[1]), "%s has no flag --%s: %s", cmd.CommandPath(), name[1], line)
		}
	}
}

func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}
