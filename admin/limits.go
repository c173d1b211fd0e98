package admin

import (
	"cmp"
	"maps"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// addLimits adds the limits that one drainer is configured with. Of those that differ, it keeps the
// smallest, so that the choice does not depend on the order of the rows.
func (o *overview) addLimits(limits postbox.Limits) {
	switch {
	case o.Processes == 1: // this is the first
		o.Limits = limits
	case !spool.SameLimits(limits, o.Limits):
		o.LimitsDiffer = true
		if compareLimits(limits, o.Limits) < 0 {
			o.Limits = limits
		}
	}
}

// compareLimits orders limits by their parts. No limit comes last.
func compareLimits(a, b postbox.Limits) int {
	return cmp.Or(compareLimit(a.Total, b.Total),
		slices.Compare(slices.Sorted(maps.Keys(a.Topics)), slices.Sorted(maps.Keys(b.Topics))),
		slices.CompareFunc(limitsByTopic(a), limitsByTopic(b), compareLimit))
}

func limitsByTopic(l postbox.Limits) (limits []postbox.Limit) {
	for _, topic := range slices.Sorted(maps.Keys(l.Topics)) {
		limits = append(limits, l.Topics[topic])
	}
	return limits
}

func compareLimit(a, b postbox.Limit) int {
	return cmp.Or(smaller(a.PerSecond, b.PerSecond), smaller(a.MaxConcurrent, b.MaxConcurrent))
}

func smaller[N int | float64](a, b N) int {
	switch {
	case a == b:
		return 0
	case a == 0:
		return 1
	case b == 0:
		return -1
	default:
		return cmp.Compare(a, b)
	}
}
