package main

import (
	"fmt"
	"time"
)

// sent names a message of a trial: the number says its place among those of its key.
type sent struct {
	key    string
	number int
}

// result is what a trial has shown.
type result struct {
	dead, published, missing, orderViolations int
	failures                                  int // calls of the publisher that failed
	counted                                   int // of these, the ones that the outbox counted as an attempt
	after                                     time.Duration
	errors                                    []string
}

func (r result) String() string {
	return fmt.Sprintf("dead=%d published=%d missing=%d order_violations=%d failed_calls=%d attempts_counted=%d after=%s",
		r.dead, r.published, r.missing, r.orderViolations, r.failures, r.counted, r.after.Round(100*time.Millisecond))
}

func (r result) bad() bool { return r.dead+r.missing+r.orderViolations > 0 }

// received collects what the broker has. Copies are allowed, and only the first counts: an outbox
// publishes at least once.
type received struct {
	seen       map[sent]bool
	last       map[string]int // the highest number of each key
	violations int
}

func newReceived() *received { return &received{seen: map[sent]bool{}, last: map[string]int{}} }

func (r *received) add(s sent) {
	if r.seen[s] {
		return
	}
	r.seen[s] = true
	if s.number < r.last[s.key] {
		r.violations++
	}
	r.last[s.key] = max(r.last[s.key], s.number)
}

func (r *received) missing(all []sent) int {
	missing := 0
	for _, s := range all {
		if !r.seen[s] {
			missing++
		}
	}
	return missing
}
