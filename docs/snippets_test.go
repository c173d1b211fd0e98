package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The pages for users show code that compiles: each part of their Go blocks stands, line for line,
// in an example or a test.
func TestDocs_snippets_of_the_guides_stand_in_compiled_examples(t *testing.T) {
	t.Parallel()
	var compiled strings.Builder
	for _, pattern := range []string{
		"*_test.go", "docs/*_test.go", "forwarder/*_test.go", "queue/*_test.go", "postboxtest/*_test.go", "*/page_test.go", "*/*/page_test.go",
		"examples/*/*.go", "examples/internal/pipes/*.go", "pgxbox/*_test.go", "proof/transactions/*.go",
	} {
		for _, source := range matching(t, pattern) {
			compiled.WriteString(withoutIndentation(source) + "\n")
		}
	}
	shown := 0
	for _, page := range matching(t, "docs/*.md") {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1) {
			for part := range strings.SplitSeq(block[1], "\n\n") {
				shown++
				if !strings.Contains(compiled.String(), withoutIndentation(part)) {
					t.Errorf("no example has this:\n%s", part)
				}
			}
		}
	}
	require.Greater(t, shown, 50)
}

// matching returns the texts of the files that a pattern names.
func matching(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	texts := make([]string, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // found by this test
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	return texts
}
