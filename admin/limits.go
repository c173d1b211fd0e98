package admin

import (
	"maps"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/operate"
)

// LimitScope is what a limit bounds.
type LimitScope string

// The scopes of limits, as in [postbox.Limits].
const (
	// LimitTotal is the whole outbox or queue.
	LimitTotal LimitScope = "total"
	// LimitTopic is one topic of an outbox.
	LimitTopic LimitScope = "topic"
	// LimitEachKey is each ordering key by itself.
	LimitEachKey LimitScope = "each key"
)

// LimitInfo is a limit of an outbox or a queue, over all its processes together.
type LimitInfo struct {
	Scope LimitScope
	// Topic is set for [LimitTopic].
	Topic string
	// PerSecond and AtOnce are as in [postbox.Limit]; 0 is no limit.
	PerSecond float64
	AtOnce    int
	// PerSecondStored and AtOnceStored tell where they come from: true if an operator has stored the value, as [Settings.PerSecond] or [Settings.AtOnce],
	// and false if processes are configured with it. A stored value may be no limit, in place of a configured one.
	PerSecondStored, AtOnceStored bool
}

// limitInfos lists the limits of a spool: in total, then of topics by name, then of each key.
func limitInfos(s *operate.Overview) (infos []LimitInfo) {
	limits := s.LimitsOf()
	total := LimitInfo{
		Scope: LimitTotal, PerSecond: limits.Total.PerSecond, AtOnce: limits.Total.AtOnce,
		PerSecondStored: s.Settings.PerSecond != 0, AtOnceStored: s.Settings.AtOnce != 0,
	}
	if total != (LimitInfo{Scope: LimitTotal}) {
		infos = append(infos, total)
	}
	configured := func(scope LimitScope, topic string, limit postbox.Limit) {
		if !limit.None() {
			infos = append(infos, LimitInfo{Scope: scope, Topic: topic, PerSecond: limit.PerSecond, AtOnce: limit.AtOnce})
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(limits.Topics)) {
		configured(LimitTopic, topic, limits.Topics[topic])
	}
	configured(LimitEachKey, "", limits.EachKey)
	return infos
}
