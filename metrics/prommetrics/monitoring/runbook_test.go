package monitoring_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each alert links to its section, which says what it means, what to look at and what to do.
func TestRunbook_has_a_section_for_each_alert_and_no_other(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## Alerts\n")
	require.True(t, found)
	rest, _, found = strings.Cut(rest, "\n## ")
	require.True(t, found)
	sections := regexp.MustCompile(`(?m)^### `).Split(rest, -1)[1:]
	var documented, alerts []string
	for _, section := range sections {
		alert, body, _ := strings.Cut(section, "\n")
		documented = append(documented, alert)
		for _, part := range []string{"**It means:**", "**Look at**", "**Do:**"} {
			require.Equal(t, 1, strings.Count(body, "\n"+part), "%s: %s", alert, part)
		}
	}
	for _, rule := range rules(t) {
		alerts = append(alerts, rule.Alert)
	}
	require.Equal(t, alerts, documented, "in the same order")
}
