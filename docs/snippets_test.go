package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The guides show code that compiles: each part of their Go blocks stands, line for line, in an
// example or a test.
func TestDocs_snippets_of_the_guides_stand_in_compiled_examples(t *testing.T) {
	t.Parallel()
	var sources []string
	for _, pattern := range []string{"examples/migrate-*/*.go", "examples/cqrs/*.go", "examples/kafka-partition/*.go", "examples/postgres-*/*.go", "examples/internal/pipes/*.go", "proof/transactions/*.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		sources = append(sources, found...)
	}
	var compiled strings.Builder
	for _, source := range append(sources, "readme_example_test.go", "forwarder/silent_test.go", "forwarder/delay_test.go", "docs/answers_test.go", "forwarder/example_encrypt_test.go", "postboxtest/example_test.go", "postboxtest/service_test.go", "queue/example_test.go", "pgxbox/example_test.go") {
		text, err := os.ReadFile(source) //nolint:gosec // found by this test
		require.NoError(t, err)
		compiled.WriteString(withoutIndentation(string(text)) + "\n")
	}
	var guides []byte
	for _, page := range []string{"docs/adopt.md", "docs/brokers.md", "docs/coming-from-watermill.md", "docs/cqrs.md", "docs/databases.md", "docs/deferred.md", "docs/pgx.md", "docs/privacy.md", "docs/questions.md", "docs/retries.md", "docs/testing.md", "docs/transactions.md"} {
		guide, err := os.ReadFile(page) //nolint:gosec // of this repository
		require.NoError(t, err)
		guides = append(guides, guide...)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(guides), -1)
	require.Greater(t, len(blocks), 5)
	for _, block := range blocks {
		for part := range strings.SplitSeq(block[1], "\n\n") {
			if !strings.Contains(compiled.String(), withoutIndentation(part)) {
				t.Errorf("no example has this:\n%s", part)
			}
		}
	}
}
