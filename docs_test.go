package postbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every link of the documents leads somewhere, and where it names a test, that test is there.
func TestDocs_links_and_proofs_exist(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	link := regexp.MustCompile(`\[([^\]]*)\]\(([^)#]*)[^)]*\)`)
	proofs := 0
	for _, document := range append(documents, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			name, target := found[1], found[2]
			if target == "" || strings.HasPrefix(target, "https://") {
				continue
			}
			path := filepath.Join(filepath.Dir(document), target)
			_, err := os.Stat(path) //nolint:gosec // a link of our own
			require.NoError(t, err, document)
			if strings.HasSuffix(path, "_test.go") && strings.HasPrefix(name, "Test") {
				source, err := os.ReadFile(path) //nolint:gosec // a link of our own
				require.NoError(t, err)
				require.Contains(t, string(source), "func "+name+"(", document)
				proofs++
			}
		}
	}
	require.Greater(t, proofs, 50, "the features' proofs are among them")
}
