package dashboard_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
)

// linkTo returns the address behind a text, or "" if there is none.
func (b *bench) linkTo(a answer, text string) string {
	b.Helper()
	found := regexp.MustCompile(`<a [^>]*href="([^"]*)"[^>]*>` + regexp.QuoteMeta(text) + `</a>`).FindStringSubmatch(a.body)
	if found == nil {
		return ""
	}
	return html.UnescapeString(found[1])
}

// column returns the texts of a column of the first table.
func (b *bench) column(a answer, n int) []string {
	b.Helper()
	_, body, found := strings.Cut(a.body, "<tbody>")
	require.True(b, found, "there is no table: %s", a.text())
	body, _, _ = strings.Cut(body, "</tbody>")
	var cells []string
	for _, row := range regexp.MustCompile(`(?s)<tr>(.*?)</tr>`).FindAllStringSubmatch(body, -1) {
		all := regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`).FindAllStringSubmatch(row[1], -1)
		cells = append(cells, answer{body: all[n][1]}.text())
	}
	return cells
}

// All links of a page, without those that cannot be followed.
func (b *bench) links(a answer) []string {
	b.Helper()
	var links []string
	for _, found := range regexp.MustCompile(`(?:href|action|src)="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		links = append(links, html.UnescapeString(found[1]))
	}
	return links
}

func TestConfig_mistakes_are_all_named(t *testing.T) {
	t.Parallel()
	_, err := dashboard.New(&admin.Admin{}, dashboard.Config{Refresh: 1, Timeout: -1}, nil)
	require.ErrorContains(t, err, "Refresh")
	require.ErrorContains(t, err, "Timeout")
	_, err = dashboard.New(nil, dashboard.Config{}, nil)
	require.ErrorContains(t, err, "admin.New")
}
