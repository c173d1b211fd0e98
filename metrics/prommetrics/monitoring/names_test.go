package monitoring_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/internal/naming"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/monitoring"
)

// ofPrometheus are labels that Prometheus and Kubernetes add.
var ofPrometheus = []string{"job", "instance", "pod", "le"}

// instrumentsByName are the instruments by the names that their series have in Prometheus.
func instrumentsByName() map[string]*metrics.Instrument {
	byName := map[string]*metrics.Instrument{}
	for _, i := range instruments.All() {
		name := naming.Of(i)
		if i.Kind != metrics.Histogram {
			byName[name] = i
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			byName[name+suffix] = i
		}
	}
	return byName
}

func labelsOf(instruments ...*metrics.Instrument) []string {
	labels := slices.Clone(ofPrometheus)
	for _, i := range instruments {
		for _, label := range i.Labels {
			labels = append(labels, strings.ReplaceAll(label, ".", "_"))
		}
	}
	return labels
}

var (
	selector  = regexp.MustCompile(`\b((?:postbox|messaging)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([a-z_, ]*)\)`)
	legend    = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	annotated = regexp.MustCompile(`\$labels\.(\w+)`)
)

// namesIn fails unless all metrics and labels of an expression exist, and returns the instruments.
func namesIn(t *testing.T, expression string) []*metrics.Instrument {
	t.Helper()
	known := instrumentsByName()
	for _, group := range grouping.FindAllStringSubmatch(expression, -1) {
		for _, label := range strings.Split(group[1], ",") {
			require.Contains(t, labelsOf(instruments.All()...), strings.TrimSpace(label), expression)
		}
	}
	var found []*metrics.Instrument
	for _, s := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expression, ""), -1) {
		i := known[s[1]]
		require.NotNil(t, i, "no instrument is called %s in Prometheus: %s", s[1], expression)
		found = append(found, i)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			label, operator, value := m[1], m[2], m[3]
			require.Contains(t, labelsOf(i), label, expression)
			if operator == "=" { // the values of a label are in the help of the instrument
				require.Regexp(t, `\b`+regexp.QuoteMeta(value)+`\b`, i.Help, expression)
			}
		}
	}
	return found
}

func TestAlerts_name_metrics_and_labels_that_exist(t *testing.T) {
	t.Parallel()
	for _, rule := range rules(t) {
		found := namesIn(t, rule.Expr)
		require.NotEmpty(t, found, rule.Alert)
		for _, text := range rule.Annotations {
			for _, label := range annotated.FindAllStringSubmatch(text, -1) {
				require.Contains(t, labelsOf(found...), label[1], rule.Alert)
			}
		}
	}
}

// A new instrument needs a place on the dashboard.
func TestDashboard_shows_each_instrument_by_names_that_exist(t *testing.T) {
	t.Parallel()
	var shown []*metrics.Instrument
	for _, target := range targets(t) {
		found := namesIn(t, target.Expr)
		require.NotEmpty(t, found, target.Expr)
		shown = append(shown, found...)
		for _, label := range legend.FindAllStringSubmatch(target.Legend, -1) {
			require.Contains(t, labelsOf(found...), label[1], target.Expr)
			require.Contains(t, target.Expr+" instance", label[1], "the expression has summed over the label %s: %s", label[1], target.Expr)
		}
	}
	for _, i := range instruments.All() {
		require.Contains(t, shown, i, "%s is on no panel", i.Name)
	}
}

type target struct {
	Expr   string `json:"expr"`
	Legend string `json:"legendFormat"`
}

// targets are the queries of all panels.
func targets(t *testing.T) []target {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int      `json:"id"`
			Title   string   `json:"title"`
			Type    string   `json:"type"`
			Targets []target `json:"targets"`
		} `json:"panels"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
	}
	require.NoError(t, json.Unmarshal([]byte(monitoring.Dashboard()), &dashboard))
	var all []target
	ids := map[int]bool{}
	for _, panel := range dashboard.Panels {
		require.False(t, ids[panel.ID], "two panels have the id %d", panel.ID)
		ids[panel.ID] = true
		require.NotEmpty(t, panel.Title)
		require.Equal(t, panel.Type == "row", len(panel.Targets) == 0, panel.Title)
		all = append(all, panel.Targets...)
	}
	var variables []string
	for _, variable := range dashboard.Templating.List {
		variables = append(variables, variable.Name)
		if variable.Definition != "" {
			require.NotEmpty(t, namesIn(t, variable.Definition))
		}
	}
	require.Equal(t, []string{"datasource", "job", "kind", "name"}, variables)
	require.Greater(t, len(all), 20)
	return all
}
