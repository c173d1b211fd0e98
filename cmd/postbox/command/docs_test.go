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

// The commands that documents show in blocks exist, with their flags.
func TestDocs_show_commands_that_exist(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	block, shown := regexp.MustCompile("(?s)```sh\n(.*?)```"), 0
	for _, document := range documents {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, found := range block.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.SplitSeq(found[1], "\n") {
				words := strings.Fields(line)
				if len(words) == 0 || words[0] != "postbox" {
					continue
				}
				cmd, args, err := command.New(command.Options{}).Find(words[1:])
				require.NoError(t, err, "%s: %s", document, line)
				require.True(t, cmd.Runnable(), "%s: %s", document, line)
				require.NoError(t, cmd.ParseFlags(args), "%s: %s", document, line)
				require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", document, line)
				shown++
			}
		}
	}
	require.Positive(t, shown)
}
