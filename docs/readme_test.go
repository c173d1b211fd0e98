package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows code that compiles, and that a test runs: it stands, line for line, in an
// example.
func TestReadme_snippets_stand_in_compiled_examples(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("examples/start/main.go")
	require.NoError(t, err)
	compiled := withoutIndentation(string(source))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 1)
	for _, block := range blocks {
		for part := range strings.SplitSeq(block[1], "\n\n") {
			require.Contains(t, compiled, withoutIndentation(part))
		}
	}
}

func withoutIndentation(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed != "must(err)" && !strings.HasPrefix(trimmed, "defer ") {
			lines = append(lines, trimmed)
		}
	}
	return strings.Join(lines, "\n")
}
