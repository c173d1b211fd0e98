package command_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
)

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	// In the runbook, commands also stand between back quotes, and at the beginning of lines of
	// other blocks.
	commandSpan = regexp.MustCompile("`(postbox [^`]+)`")
	commandLine = regexp.MustCompile(`(?m)^(?:\$ )?(postbox [^#\n]+)`)
	shellWord   = regexp.MustCompile(`"[^"]*"|\S+`)
)

// The commands that documents show in blocks exist, with their flags.
func TestDocs_show_commands_that_exist(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	shown := 0
	for _, document := range documents {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, found := range shellBlock.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.SplitSeq(found[1], "\n") {
				line, _, _ = strings.Cut(line, " # ")
				if words := shellWord.FindAllString(line, -1); len(words) > 0 && words[0] == "postbox" {
					requireCommand(t, document, words)
					shown++
				}
			}
		}
	}
	require.Positive(t, shown)
}

// An operator copies the commands of the runbook at three in the morning.
func TestRunbook_has_commands_that_exist(t *testing.T) {
	t.Parallel()
	const runbook = "../../../docs/operations.md"
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	shown := 0
	for _, pattern := range []*regexp.Regexp{commandSpan, commandLine} {
		for _, found := range pattern.FindAllStringSubmatch(string(text), -1) {
			if words := shellWord.FindAllString(found[1], -1); words[0] == "postbox" { // "postbox:" begins an error
				requireCommand(t, runbook, words)
				shown++
			}
		}
	}
	require.Greater(t, shown, 40)
}

// requireCommand fails unless a document names a command that the program has, with flags and as
// many arguments as it takes.
func requireCommand(t *testing.T, document string, words []string) {
	t.Helper()
	line := strings.Join(words, " ")
	cmd, args, err := command.New(command.Options{}).Find(words[1:])
	require.NoError(t, err, "%s: %s", document, line)
	group := cmd.HasSubCommands() && cmd.Name() != "lanes" // which does something by itself, too
	require.True(t, cmd.Runnable() && !group, "%s: %s", document, line)
	require.NoError(t, cmd.ParseFlags(args), "%s: %s", document, line)
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", document, line)
}
