package postbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The guide shows code that compiles: each part of its Go blocks stands, line for line, in an example.
func TestDocs_snippets_of_the_guide_stand_in_compiled_examples(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("examples/migrate-*/*.go")
	require.NoError(t, err)
	var compiled strings.Builder
	for _, source := range append(sources, "readme_example_test.go") {
		text, err := os.ReadFile(source) //nolint:gosec // found by this test
		require.NoError(t, err)
		compiled.WriteString(withoutIndentation(string(text)) + "\n")
	}
	guide, err := os.ReadFile("docs/adopt.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	require.Greater(t, len(blocks), 4)
	for _, block := range blocks {
		for part := range strings.SplitSeq(block[1], "\n\n") {
			if !strings.Contains(compiled.String(), withoutIndentation(part)) {
				t.Errorf("no example has this:\n%s", part)
			}
		}
	}
}
