// Package monitoring has alert rules for Prometheus and a dashboard for Grafana, for the metrics of
// package prommetrics.
//
// They are the files alerts.yml and dashboard.json of this folder. The functions return the same,
// for programs that install or adapt them. docs/operations.md says for each alert what to do.
package monitoring

import _ "embed" // for the two files

var (
	//go:embed alerts.yml
	alerts string
	//go:embed dashboard.json
	dashboard string
)

// Alerts returns a file of alert rules, as YAML for rule_files of Prometheus. Its comments have the
// reason for each threshold.
func Alerts() string { return alerts }

// Dashboard returns a dashboard, as JSON that Grafana imports. It asks for the data source, and has
// variables for the job, the kind (outbox or queue) and the name.
func Dashboard() string { return dashboard }
