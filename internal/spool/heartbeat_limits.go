package spool

import (
	"maps"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
)

// maxLimits limits the topics with a limit in a heartbeat.
const maxLimits = 100

// storedLimit is the stored form of a limit, and storedLimits that of all.
type (
	storedLimit struct {
		PerSecond     float64 `json:"per_second,omitempty"`
		MaxConcurrent int     `json:"max_concurrent,omitempty"`
	}
	storedLimits struct {
		Total  storedLimit            `json:"total,omitzero"`
		Topics map[string]storedLimit `json:"topics,omitempty"`
	}
)

// storeLimits returns the stored form, with the first topics by name.
func storeLimits(l postbox.Limits) storedLimits {
	stored := storedLimits{Total: storedLimit(l.Total)}
	if len(l.Topics) > 0 {
		stored.Topics = map[string]storedLimit{}
		topics := slices.Sorted(maps.Keys(l.Topics))
		for _, topic := range topics[:min(len(topics), maxLimits)] {
			stored.Topics[topic] = storedLimit(l.Topics[topic])
		}
	}
	return stored
}

// limits reads the stored form.
func (s storedLimits) limits() postbox.Limits {
	l := postbox.Limits{Total: postbox.Limit(s.Total)}
	if len(s.Topics) > 0 {
		l.Topics = map[string]postbox.Limit{}
		for topic, limit := range s.Topics {
			l.Topics[topic] = postbox.Limit(limit)
		}
	}
	return l
}
