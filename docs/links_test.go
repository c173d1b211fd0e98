package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every link of the documents leads to a file, and to a heading of it where it names one. Where it
// names a test, that test is there.
func TestDocs_links_and_proofs_exist(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\[([^\]]*)\]\(([^)#]*)(?:#([^)]*))?\)`)
	proofs := 0
	for _, document := range append(pages(t), "README.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			name, target, heading := found[1], found[2], found[3]
			if strings.HasPrefix(target, "https://") {
				continue
			}
			path := document
			if target != "" {
				path = filepath.Join(filepath.Dir(document), target)
			}
			_, err := os.Stat(path) //nolint:gosec // a link of our own
			require.NoError(t, err, document)
			if heading != "" {
				require.Contains(t, headingsOf(t, path), heading, "%s links to a heading of %s", document, path)
			}
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

// pages returns the pages for users and operators, and those for people who change Postbox.
func pages(t *testing.T) []string {
	t.Helper()
	users, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	developers, err := filepath.Glob("docs/dev/*.md")
	require.NoError(t, err)
	return append(users, developers...)
}

// headingsOf returns the headings of a page as links name them: in small letters, without
// punctuation, and with hyphens.
func headingsOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a link of our own
	require.NoError(t, err)
	var headings []string
	dropped := regexp.MustCompile(`[^\w\- ]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		name := dropped.ReplaceAllString(strings.ToLower(heading[1]), "")
		headings = append(headings, strings.ReplaceAll(name, " ", "-"))
	}
	return headings
}

// A test that a document names without a link is there, too.
func TestDocs_name_tests_that_exist(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path) //nolint:gosec // a source of our own
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			exists[found[1]] = true
		}
		return err
	}))
	named, names := regexp.MustCompile("`(Test[A-Z]\\w+)`"), 0
	for _, document := range pages(t) {
		text, err := os.ReadFile(document) //nolint:gosec // found by this test
		require.NoError(t, err)
		for _, found := range named.FindAllStringSubmatch(string(text), -1) {
			require.True(t, exists[found[1]], "%s names %s", document, found[1])
			names++
		}
	}
	require.Greater(t, names, 30, "what the safeguards are caught by is among them")
}

// The README says which Go the modules need that users import.
func TestReadme_names_the_go_of_go_mod(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	module, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	require.NotNil(t, version)
	require.Contains(t, string(readme), "It needs Go "+string(version[1])+" ")
}

// The README says which versions make test-versions runs.
func TestReadme_names_each_version_of_test_versions(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	script, err := os.ReadFile("scripts/test-versions")
	require.NoError(t, err)
	list := regexp.MustCompile(`versions=\(([a-z0-9. -]+)\)`).FindSubmatch(script)
	require.NotNil(t, list)
	for version := range strings.FieldsSeq(string(list[1])) {
		name, number, _ := strings.Cut(version, "-")
		if name == "postgres" {
			number = strings.TrimSuffix(number, ".0") // PostgreSQL itself says 13.22
		}
		require.Contains(t, string(readme), number)
	}
}
