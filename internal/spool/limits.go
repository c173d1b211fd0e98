package spool

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Bounds of a rate, but for 0. The highest is more than any process handles, and small enough to
// count with. The lowest is one message in 28 hours: with less an outbox or a queue seems to hang,
// which is what a pause is for, and a pause is seen.
const (
	MinPerSecond = 0.00001
	MaxPerSecond = 1_000_000
)

// NoLimits says whether the limits limit nothing.
func NoLimits(l postbox.Limits) bool { return l.Total == postbox.Limit{} && len(l.Topics) == 0 }

// SameLimits says whether two limits are the same.
func SameLimits(a, b postbox.Limits) bool {
	return a.Total == b.Total && maps.Equal(a.Topics, b.Topics)
}

// ValidLimits returns all that is wrong with the limits.
func ValidLimits(l postbox.Limits) error {
	var problems []error
	check := func(name string, limit postbox.Limit) {
		if err := errors.Join(ValidRate(limit.PerSecond), ValidCalls("MaxConcurrent", limit.MaxConcurrent)); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	check("Total", l.Total)
	for _, topic := range slices.Sorted(maps.Keys(l.Topics)) {
		check(fmt.Sprintf("Topics[%.60q]", topic), l.Topics[topic])
		if topic == "" {
			problems = append(problems, errors.New("Topics: the name of a topic is empty: use Total to limit all topics together"))
		} else if err := CheckTopic(topic); err != nil {
			problems = append(problems, fmt.Errorf("Topics: %w", err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("Limits: %w", err)
	}
	return nil
}

// ValidRate says what is wrong with a number of messages in a second.
func ValidRate(perSecond float64) error {
	switch {
	case !(perSecond >= 0 && perSecond <= MaxPerSecond): // NaN is not
		return fmt.Errorf("PerSecond: %g is not between 0 and %d: use a number in this range", perSecond, MaxPerSecond)
	case perSecond > 0 && perSecond < MinPerSecond:
		return fmt.Errorf("PerSecond: %g is less than %.5f, which is one message in 28 hours: use that or more, or pause what no process shall handle", perSecond, MinPerSecond)
	default:
		return nil
	}
}

// ValidCalls says what is wrong with a number of calls at the same time, in the field of that name.
func ValidCalls(field string, n int) error {
	if n < 0 || n > math.MaxInt32 {
		return fmt.Errorf("%s: %d is not between 0 and %d: use a number in this range", field, n, math.MaxInt32)
	}
	return nil
}
