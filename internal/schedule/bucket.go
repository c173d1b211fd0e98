package schedule

import "time"

// bucket is a token bucket: each message takes a token, and tokens come back at a rate, up to a number that may be saved
// up. golang.org/x/time/rate does the same, for many goroutines, and with two more lines in the go.sum of each service.
type bucket struct {
	perSecond float64
	most      int
	tokens    float64 // at the time at
	at        time.Time
}

// emptyBucket returns a bucket that was empty at the given time.
func emptyBucket(perSecond float64, most int, at time.Time) *bucket {
	return &bucket{perSecond: perSecond, most: most, at: at}
}

// tokensAt returns how many messages may start.
func (b *bucket) tokensAt(now time.Time) float64 {
	return min(b.tokens+max(now.Sub(b.at).Seconds(), 0)*b.perSecond, float64(b.most))
}

// take takes a token for each message.
func (b *bucket) take(now time.Time, messages int) {
	b.settle(now)
	b.tokens -= float64(messages)
}

// change sets another rate and another number that may be saved up. What is saved up stays, as far as it fits in.
func (b *bucket) change(now time.Time, perSecond float64, most int) {
	b.settle(now)
	b.perSecond, b.most = perSecond, most
}

// settle counts the tokens up to now.
func (b *bucket) settle(now time.Time) {
	b.tokens = b.tokensAt(now)
	if now.After(b.at) {
		b.at = now
	}
}
