package command

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
)

// limitRecord is a limit over all processes. What is left out is not limited.
type limitRecord struct {
	Scope string `json:"scope"`
	Topic string `json:"topic,omitempty"`
	// What an operator has stored as "none" is 0.
	PerSecond         *float64 `json:"per_second,omitempty"`
	PerSecondFrom     string   `json:"per_second_from,omitempty"`
	MaxConcurrent     *int     `json:"max_concurrent,omitempty"`
	MaxConcurrentFrom string   `json:"max_concurrent_from,omitempty"`
}

// Where a limit comes from.
const (
	fromConfig = "config" // of processes
	fromSet    = "set"    // by an operator
)

func limitFrom(stored bool) string {
	if stored {
		return fromSet
	}
	return fromConfig
}

// limitRecordsOf lists the limits of an outbox or a queue: in total, then of topics by name.
func limitRecordsOf(info admin.QueueInfo) (records []limitRecord) {
	add := func(scope, topic string, l postbox.Limit, stored admin.Settings) {
		record := limitRecord{Scope: scope, Topic: topic}
		if l.PerSecond != 0 || stored.PerSecond != 0 {
			record.PerSecond, record.PerSecondFrom = &l.PerSecond, limitFrom(stored.PerSecond != 0)
		}
		if l.MaxConcurrent != 0 || stored.MaxConcurrent != 0 {
			record.MaxConcurrent, record.MaxConcurrentFrom = &l.MaxConcurrent, limitFrom(stored.MaxConcurrent != 0)
		}
		if record.PerSecond != nil || record.MaxConcurrent != nil {
			records = append(records, record)
		}
	}
	add("total", "", info.Limits.Total, info.Settings)
	for _, topic := range slices.Sorted(maps.Keys(info.Limits.Topics)) {
		add("topic", topic, info.Limits.Topics[topic], admin.Settings{})
	}
	return records
}

// limitsCell writes limits for a table.
func limitsCell(info admin.QueueInfo) string {
	var parts []string
	for _, l := range limitRecordsOf(info) {
		of := ""
		if l.Topic != "" {
			of = "topic " + nameCell(l.Topic) + " "
		}
		if l.PerSecond != nil {
			parts = append(parts, of+limitText(*l.PerSecond, "/s", "any rate")+" ("+l.PerSecondFrom+")")
		}
		if l.MaxConcurrent != nil {
			parts = append(parts, of+limitText(float64(*l.MaxConcurrent), " at once", "any number at once")+" ("+l.MaxConcurrentFrom+")")
		}
	}
	if info.LimitsDiffer {
		parts = append(parts, "processes differ")
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func limitText(n float64, unit, unlimited string) string {
	if n == 0 {
		return unlimited
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + unit
}
