package instruments_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// page is where the instruments are documented, between two marks.
const (
	page  = "../../docs/metrics.md"
	begin = "<!-- The table is generated: go test ./internal/instruments -update -->\n"
	end   = "<!-- end of the table -->\n"
)

// table is the table of docs/metrics.md.
func table() string {
	var text strings.Builder
	for _, counted := range []bool{false, true} {
		title := "## What each process reports"
		if counted {
			title = "## What is counted in the database"
		}
		fmt.Fprintf(&text, "\n%s\n\n| name | kind, unit | labels | meaning |\n| --- | --- | --- | --- |\n", title)
		for _, i := range instruments.All() {
			if i.Database == counted {
				labels := make([]string, len(i.Labels))
				for n, label := range i.Labels {
					labels[n] = "`" + label + "`"
				}
				fmt.Fprintf(&text, "| `%s` | %s, `%s` | %s | %s |\n", i.Name, i.Kind, i.Unit, strings.Join(labels, " "), i.Help)
			}
		}
	}
	return text.String() + "\n"
}

func TestInstruments_are_those_of_the_documentation(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(content), begin)
	require.True(t, found)
	documented, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+table()+end+after), 0o600)) //nolint:gosec // the path is a constant
		return
	}
	require.Equal(t, table(), documented, "run go test ./internal/instruments -update")
}

var (
	nameForm  = regexp.MustCompile(`^(postbox|messaging)(\.[a-z_]+)+$`)
	labelForm = regexp.MustCompile(`^(kind|name|topic|outcome|result|limit|consumer|state|messaging\.(system|operation\.name|destination\.name)|error\.type)$`)
)

// Labels with a value for each message would make a series for each message.
func TestInstruments_have_names_units_and_few_labels(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, i := range instruments.All() {
		require.Regexp(t, nameForm, i.Name)
		require.False(t, names[i.Name], i.Name)
		names[i.Name] = true
		require.NotEmpty(t, i.Unit, i.Name)
		require.Regexp(t, `\.$`, i.Help, i.Name)
		for _, label := range i.Labels {
			require.Regexp(t, labelForm, label, i.Name)
		}
		require.Equal(t, i.Kind == metrics.Histogram, len(i.Buckets) > 0, i.Name)
		require.True(t, slices.IsSorted(i.Buckets), i.Name)
		if i.Database {
			require.Equal(t, metrics.Gauge, i.Kind, i.Name)
		}
	}
}

func TestAll_returns_a_list_of_its_own(t *testing.T) {
	t.Parallel()
	instruments.All()[0] = nil
	require.NotNil(t, instruments.All()[0])
}
