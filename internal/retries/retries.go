// Package retries follows a retry profile: which pauses it sets, and when it ends.
package retries

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Values of a profile that are no numbers.
const (
	unlimited = -1 // attempts
	exact     = -1 // pauses, without jitter
)

// WithDefaults fills in the fields that are zero.
func WithDefaults(p postbox.RetryProfile, attempts int) postbox.RetryProfile {
	p.Attempts = cmp.Or(p.Attempts, attempts)
	p.Base = cmp.Or(p.Base, time.Second)
	p.Multiplier = cmp.Or(p.Multiplier, 2)
	p.Cap = cmp.Or(p.Cap, max(time.Minute, p.Base))
	p.Jitter = cmp.Or(p.Jitter, 1)
	return p
}

// Validate returns all that is wrong with a profile that has its defaults.
func Validate(p postbox.RetryProfile) error {
	var problems []error
	if p.Attempts < 1 && p.Attempts != unlimited {
		problems = append(problems, fmt.Errorf("Attempts: %d is not positive: use a positive number, or -1 to never give up", p.Attempts))
	}
	if p.Base < 0 || p.Cap < p.Base {
		problems = append(problems, fmt.Errorf("Base and Cap: %s is negative, or is more than %s", p.Base, p.Cap))
	}
	if !(p.Multiplier >= 1) || math.IsInf(p.Multiplier, 1) { // NaN is not
		problems = append(problems, fmt.Errorf("Multiplier: %g is not a finite number of at least 1", p.Multiplier))
	}
	if !(p.Jitter >= 0 && p.Jitter <= 1 || p.Jitter == exact) {
		problems = append(problems, fmt.Errorf("Jitter: %g is not between 0 and 1: use a number in this range, or -1 for exact pauses", p.Jitter))
	}
	return errors.Join(problems...)
}

// Exhausted says whether the profile allows no more attempts after so many failed ones.
func Exhausted(p postbox.RetryProfile, failed int) bool {
	return p.Attempts != unlimited && failed >= p.Attempts
}

// Delay returns the pause after the given number of failed attempts, counted from 1.
func Delay(p postbox.RetryProfile, failed int) time.Duration {
	full := math.Min(float64(p.Cap), float64(p.Base)*math.Pow(p.Multiplier, float64(failed-1)))
	random := max(p.Jitter, 0) * rand.Float64() //nolint:gosec // jitter needs no secrecy
	return time.Duration(full * (1 - max(p.Jitter, 0) + random))
}
