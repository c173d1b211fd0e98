package command

import (
	"strconv"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin"
)

// limitRecord is a limit over all processes. What is left out is not limited.
type limitRecord struct {
	Scope string `json:"scope"`
	Topic string `json:"topic,omitempty"`
	// What an operator has stored as "none" is 0.
	PerSecond     *float64 `json:"per_second,omitempty"`
	PerSecondFrom string   `json:"per_second_from,omitempty"`
	AtOnce        *int     `json:"at_once,omitempty"`
	AtOnceFrom    string   `json:"at_once_from,omitempty"`
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

func limitRecordOf(l admin.LimitInfo) limitRecord {
	record := limitRecord{Scope: l.Scope, Topic: l.Topic}
	if l.PerSecond != 0 || l.PerSecondStored {
		record.PerSecond, record.PerSecondFrom = &l.PerSecond, limitFrom(l.PerSecondStored)
	}
	if l.AtOnce != 0 || l.AtOnceStored {
		record.AtOnce, record.AtOnceFrom = &l.AtOnce, limitFrom(l.AtOnceStored)
	}
	return record
}

// limitsCell writes limits for a table.
func limitsCell(info admin.QueueInfo) string {
	var parts []string
	for _, l := range info.Limits {
		record, of := limitRecordOf(l), ""
		switch l.Scope {
		case "topic":
			of = "topic " + nameCell(l.Topic) + " "
		case "total":
		}
		if record.PerSecond != nil {
			parts = append(parts, of+limitText(l.PerSecond, "/s", "any rate")+" ("+record.PerSecondFrom+")")
		}
		if record.AtOnce != nil {
			parts = append(parts, of+limitText(float64(l.AtOnce), " at once", "any number at once")+" ("+record.AtOnceFrom+")")
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
