package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of faults has each number that a source cites. It names a test for each fault, or says
// why there is none. A test cites the number in its name or in the comment above it, unless it
// stands under the heading "Tested without the number".
func TestFaults_list_and_tests_agree(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/dev/faults.md")
	require.NoError(t, err)
	sources := citedFaults(t)
	row := regexp.MustCompile(`^\| (F\d+) \| .+ \| (.+) \|$`)
	test := regexp.MustCompile("`(Test\\w+)`")
	listed, numbered := map[string]bool{}, true
	for line := range strings.SplitSeq(string(page), "\n") {
		if strings.HasPrefix(line, "## ") {
			numbered = line != "## Tested without the number"
		}
		fault := row.FindStringSubmatch(line)
		if fault == nil {
			continue
		}
		require.False(t, listed[fault[1]], "%s stands in the list twice", fault[1])
		listed[fault[1]] = true
		tests := test.FindAllStringSubmatch(fault[2], -1)
		require.True(t, len(tests) > 0 || strings.HasPrefix(fault[2], "No test: "), "%s names no test and no reason", fault[1])
		for _, named := range tests {
			cited, exists := sources.tests[named[1]]
			require.True(t, exists, "%s names %s, which does not exist", fault[1], named[1])
			require.Equal(t, numbered, cited[fault[1]], "%s names %s: does it cite the number?", fault[1], named[1])
		}
	}
	require.GreaterOrEqual(t, len(listed), 40)
	for number, where := range sources.numbers {
		require.True(t, listed[number], "%s cites %s, which docs/dev/faults.md does not list", where, number)
	}
}

type faultSources struct {
	numbers map[string]string          // a file that cites the number
	tests   map[string]map[string]bool // the numbers that each test cites
}

func citedFaults(t *testing.T) faultSources {
	t.Helper()
	found := faultSources{numbers: map[string]string{}, tests: map[string]map[string]bool{}}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		source, err := os.ReadFile(name) //nolint:gosec // a source of our own
		if err != nil {
			return err
		}
		var comment strings.Builder // above the line
		for line := range strings.SplitSeq(string(source), "\n") {
			for _, number := range numbersIn(line) {
				found.numbers[number] = name
			}
			if strings.HasPrefix(line, "//") {
				comment.WriteString(line + "\n")
				continue
			}
			if test, is := strings.CutPrefix(line, "func Test"); is {
				test, _, _ = strings.Cut("Test"+test, "(")
				if found.tests[test] == nil {
					found.tests[test] = map[string]bool{}
				}
				for _, number := range numbersIn(comment.String() + test) {
					found.tests[test][number] = true
				}
			}
			comment.Reset()
		}
		return nil
	}))
	return found
}

var faultNumber = regexp.MustCompile(`F\d{1,2}`)

// numbersIn returns the numbers of faults in a text. One stands by itself, or between underscores.
func numbersIn(text string) (numbers []string) {
	letter := func(at int) bool {
		return at >= 0 && at < len(text) && (text[at] >= '0' && text[at] <= '9' || text[at] >= 'A' && text[at] <= 'Z' || text[at] >= 'a' && text[at] <= 'z')
	}
	for _, at := range faultNumber.FindAllStringIndex(text, -1) {
		if !letter(at[0]-1) && !letter(at[1]) {
			numbers = append(numbers, text[at[0]:at[1]])
		}
	}
	return numbers
}
