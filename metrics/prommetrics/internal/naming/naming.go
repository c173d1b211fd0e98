// Package naming has the names of metrics in Prometheus.
package naming

import (
	"strings"

	"github.com/postbox-go/watermill-postbox/metrics"
)

// Of returns the name that Prometheus has for an instrument.
func Of(i *metrics.Instrument) string {
	name := Underscored(i.Name)
	if i.Unit == "s" {
		name += "_seconds"
	}
	if i.Kind == metrics.Counter {
		name += "_total"
	}
	return name
}

// Underscored is a name with underscores for dots.
func Underscored(name string) string { return strings.ReplaceAll(name, ".", "_") }
