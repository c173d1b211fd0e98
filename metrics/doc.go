// Package metrics describes what Postbox measures, and has the interface that gets the
// measurements.
//
// Set the field Metrics of [postbox.Database] to a [Recorder]. Everything that is made with this
// description then reports to it: publishers, forwarders, inboxes, stores and queues. Without a
// recorder nothing is measured, and nothing is spent on it.
//
// There are three recorders, each in a module of its own, so that a service downloads only what it
// uses: metrics/prommetrics for Prometheus, metrics/otelmetrics for OpenTelemetry, and
// metrics/minutes for the database itself. What is measured is listed in docs/metrics.md. No label
// ever has a message id, a key or the text of an error.
//
// Processes report what they do. How many messages there are is counted in the database: by
// admin.Admin.Measure, which the recorders call when they are asked for values.
//
// [postbox.Database]: https://pkg.go.dev/github.com/postbox-go/watermill-postbox#Database
package metrics
