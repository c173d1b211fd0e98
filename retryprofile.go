package postbox

import "time"

// RetryProfile says how often a failed message is tried, and with which pauses. The pause after the
// first failure is Base. Each further pause is Multiplier times as long, up to Cap. A random part
// of the pause is used, see Jitter. Pauses count from the failure. A zero field has its default, so
// RetryProfile{Attempts: 3} is the default with three attempts.
//
// A random part, "full jitter", prevents messages that failed together from coming back together;
// the technique is described in the AWS Architecture Blog, "Exponential Backoff And Jitter".
type RetryProfile struct {
	// Attempts is the number of failures, in all processes together, after which a message is a
	// dead letter. -1 tries it until it succeeds, fails with a [Permanent] error, or, unless it is
	// an inbox's, has crashed 15 processes. Defaults to 15, for an outbox to 10.
	Attempts int
	// Base is the pause after the first failure. Defaults to 1 s.
	Base time.Duration
	// Multiplier is at least 1. Defaults to 2.
	Multiplier float64
	// Cap is the longest pause. Defaults to 60 s, or to Base if that is longer.
	Cap time.Duration
	// Jitter is the share of a pause that is random, up to 1. Defaults to 1; -1 makes it exact.
	Jitter float64
}
