package postbox

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

const (
	// Unlimited attempts: a message is tried until it succeeds or fails with a [Permanent] error.
	Unlimited = -1
	// NoJitter makes pauses exact.
	NoJitter = -1
)

// RetryProfile says how often a failed message is tried, and with which pauses. The pause after the first failure is Base. Each further
// pause is Multiplier times as long, up to Cap. A random part of the pause is used, see Jitter. Pauses count from the failure. A zero field
// has its default, so RetryProfile{Attempts: 3} is the default with three attempts.
//
// A random part, "full jitter", prevents messages that failed together from coming back together; the technique is described in the
// AWS Architecture Blog, "Exponential Backoff And Jitter".
type RetryProfile struct {
	// Attempts is the number of failures, in all processes together, after which a message is a dead letter.
	// [Unlimited] never gives up. Defaults to 15, for an outbox to 10.
	Attempts int
	// Base is the pause after the first failure. Defaults to 1 s.
	Base time.Duration
	// Multiplier is at least 1. Defaults to 2.
	Multiplier float64
	// Cap is the longest pause. Defaults to 60 s, or to Base if that is longer.
	Cap time.Duration
	// Jitter is the share of a pause that is random, up to 1. Defaults to 1; [NoJitter] makes it exact.
	Jitter float64
}

// RetryPatiently is for work that can as well be done later: 15 attempts with jitter. The first pauses are 2, 4 and 8 seconds. The last
// ones are hours, since there is no cap.
func RetryPatiently() RetryProfile {
	return RetryProfile{Attempts: 15, Base: 2 * time.Second, Cap: 24 * time.Hour}
}

// RetryBriefly tries again after 1, 2, 4, 8 and 16 seconds, exactly, and then gives up.
func RetryBriefly() RetryProfile {
	return RetryProfile{Attempts: 6, Base: time.Second, Cap: time.Minute, Jitter: NoJitter}
}

// WithDefaults fills in the fields that are zero.
func (p RetryProfile) WithDefaults(attempts int) RetryProfile {
	p.Attempts = cmp.Or(p.Attempts, attempts)
	p.Base = cmp.Or(p.Base, time.Second)
	p.Multiplier = cmp.Or(p.Multiplier, 2)
	p.Cap = cmp.Or(p.Cap, max(time.Minute, p.Base))
	p.Jitter = cmp.Or(p.Jitter, 1)
	return p
}

// Validate returns all that is wrong with a profile that has its defaults.
func (p RetryProfile) Validate() error {
	var problems []error
	if p.Attempts < 1 && p.Attempts != Unlimited {
		problems = append(problems, fmt.Errorf("Attempts: %d is not positive: use a positive number or postbox.Unlimited", p.Attempts))
	}
	if p.Base < 0 || p.Cap < p.Base {
		problems = append(problems, fmt.Errorf("Base and Cap: %s is negative, or is more than %s", p.Base, p.Cap))
	}
	if !(p.Multiplier >= 1) || math.IsInf(p.Multiplier, 1) { // NaN is not
		problems = append(problems, fmt.Errorf("Multiplier: %g is not a finite number of at least 1", p.Multiplier))
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1 || p.Jitter == NoJitter) {
		problems = append(problems, fmt.Errorf("Jitter: %g is not between 0 and 1: use a number in this range or postbox.NoJitter", p.Jitter))
	}
	return errors.Join(problems...)
}

// Exhausted says whether the profile allows no more attempts after so many failed ones.
func (p RetryProfile) Exhausted(failed int) bool {
	return p.Attempts != Unlimited && failed >= p.Attempts
}

// Delay returns the pause after the given number of failed attempts, counted from 1.
func (p RetryProfile) Delay(failed int) time.Duration {
	full := math.Min(float64(p.Cap), float64(p.Base)*math.Pow(p.Multiplier, float64(failed-1)))
	random := max(p.Jitter, 0) * rand.Float64() //nolint:gosec // jitter needs no secrecy
	return time.Duration(full * (1 - max(p.Jitter, 0) + random))
}
