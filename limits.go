package postbox

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Bounds of [Limit.PerSecond], but for 0. The highest is more than any process handles, and small
// enough to count with. The lowest is one message in 28 hours: with less an outbox or a queue seems
// to hang, which is what a pause is for, and a pause is seen.
const (
	MostPerSecond  = 1_000_000
	LeastPerSecond = 0.00001
)

// Limit bounds how fast messages are handed to a handler, or to the broker's publisher. A field
// that is zero sets no limit.
type Limit struct {
	// PerSecond is the number of messages that start in a second, at most 1,000,000. It may be a
	// fraction: 0.1 is one message in 10 s, and 0.00001, the least, is one in 28 hours. Attempts of
	// failed messages count, too.
	PerSecond float64
	// AtOnce is the number of calls of the handler, or of the broker's publisher, that run at the
	// same time. A batch is one call.
	AtOnce int
}

// Limits bound how fast all processes together work off an outbox or a queue. The zero value limits
// nothing. A message must be within all limits that concern it. One that has to wait costs no
// attempt, and its key keeps its order.
//
// The database counts. A process takes from it the messages of up to a quarter of a second, and has
// that long to start them, so what one does not use the others get. In any t seconds at most
// PerSecond × (t + 0.75) messages start, at most 1.75 times the rate in a second, and one more if
// the rate is below four a second. A process that crashes loses what it had taken and not used.
//
// AtOnce holds at every moment, but for handlers whose process has lost its leases and that go on
// nevertheless, because it was suspended or could not reach the database for longer than its lease.
// After a crash, what its handlers had is free when its lease is over.
//
// All processes should have the same limits. While they differ, as during a deployment, the highest
// one holds for all of them together.
type Limits struct {
	// Total is for the whole outbox or queue.
	Total Limit
	// Topics are limits for single topics of an outbox, by the name of the topic.
	Topics map[string]Limit
}

// None tells whether the limit limits nothing.
func (l Limit) None() bool { return l == Limit{} }

// None tells whether the limits limit nothing.
func (l Limits) None() bool { return l.Total.None() && len(l.Topics) == 0 }

// Equal tells whether two limits are the same.
func (l Limits) Equal(other Limits) bool {
	return l.Total == other.Total && maps.Equal(l.Topics, other.Topics)
}

// Validate returns all that is wrong with a limit.
func (l Limit) Validate() error {
	var problems []error
	if !(l.PerSecond >= 0 && l.PerSecond <= MostPerSecond) { // NaN is not
		problems = append(problems, fmt.Errorf("PerSecond: %g is not between 0 and %d: use a number in this range, or 0 for no limit", l.PerSecond, MostPerSecond))
	}
	if l.PerSecond > 0 && l.PerSecond < LeastPerSecond {
		problems = append(problems, fmt.Errorf("PerSecond: %g is less than %.5f, which is one message in 28 hours: use that or more, or pause what no process shall handle", l.PerSecond, LeastPerSecond))
	}
	if l.AtOnce < 0 || l.AtOnce > math.MaxInt32 {
		problems = append(problems, fmt.Errorf("AtOnce: %d is not between 0 and %d: use a number in this range, or 0 for no limit", l.AtOnce, math.MaxInt32))
	}
	return errors.Join(problems...)
}

// Validate returns all that is wrong with the limits.
func (l Limits) Validate() error {
	var problems []error
	check := func(name string, limit Limit) {
		if err := limit.Validate(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	check("Total", l.Total)
	for _, topic := range slices.Sorted(maps.Keys(l.Topics)) {
		check(fmt.Sprintf("Topics[%.60q]", topic), l.Topics[topic])
		if topic == "" {
			problems = append(problems, errors.New("Topics: the name of a topic is empty: use Total to limit all topics together"))
		}
	}
	return errors.Join(problems...)
}
