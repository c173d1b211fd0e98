package monitoring_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/postbox-go/watermill-postbox/internal/testservice"
	"github.com/postbox-go/watermill-postbox/metrics/prommetrics/monitoring"
)

// testFiles are the tests of the rules.
var testFiles = []string{"alerts_test.yml", "alerts_days_test.yml"}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(monitoring.Alerts()), &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// promtool runs the tool of Prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	program := testservice.Program(t, "promtool", "prometheus")
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput() //nolint:gosec // the arguments are those of the tests
	require.NoError(t, err, string(out))
}

func TestAlerts_fire_and_clear_as_their_tests_say(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint-fatal", "alerts.yml")
	promtool(t, append([]string{"test", "rules"}, testFiles...)...)
}

// The tests of promtool say when an alert does not fire yet, when it fires, and when it is over.
func TestAlerts_have_tests_a_severity_and_a_place_in_the_runbook(t *testing.T) {
	t.Parallel()
	course := map[string]string{}
	for _, name := range testFiles {
		var file struct {
			Tests []struct {
				Checks []struct {
					Alert  string `yaml:"alertname"`
					Alerts []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		text, err := os.ReadFile(name) //nolint:gosec // one of the test files
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &file))
		for _, test := range file.Tests {
			for _, check := range test.Checks {
				course[check.Alert] += map[bool]string{true: "fires ", false: "silent "}[len(check.Alerts) > 0]
			}
		}
	}
	for _, rule := range rules(t) {
		require.Contains(t, course[rule.Alert], "silent fires silent", rule.Alert)
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		require.Equal(t, "https://github.com/postbox-go/watermill-postbox/blob/main/docs/operations.md#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
	}
}

// Prometheus understands each query of the dashboard, with values for the variables.
func TestDashboard_has_queries_that_Prometheus_understands(t *testing.T) {
	t.Parallel()
	values := strings.NewReplacer("$__rate_interval", "5m", "$job", "shop", "$kind", "outbox", "$name", "outbox")
	type recording struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var records []recording
	for i, target := range targets(t) {
		query := values.Replace(target.Expr)
		require.NotContains(t, query, "$")
		records = append(records, recording{Record: fmt.Sprintf("panel:%d", i), Expr: query})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "panels", "rules": records}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "panels.yml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", "--lint-fatal", file)
}
