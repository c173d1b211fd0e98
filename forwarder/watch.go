package forwarder

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Times of the search for calls of the publisher that do not return.
const (
	// hangAfter is how long a call may take before its topic is closed and that is logged.
	hangAfter = 30 * time.Second
	// hangLook is how often the forwarder looks for such calls.
	hangLook = 10 * time.Second
	// If more calls hang than may run at a time, their workers are replaced, too, after a tenth of
	// the time since the first of them began: at least hangAfter, and at most mostPatience. So each
	// topic has a probe that hangs as often, and each costs a goroutine and the memory of its
	// messages.
	patienceShare = 10
	mostPatience  = 10 * time.Minute
)

// patience is the pause before more workers are replaced, if the first call that hangs began so
// long ago.
func (f *Forwarder) patience(since time.Duration) time.Duration {
	return max(min(since/patienceShare, mostPatience), f.hangAfter)
}

// watch looks for calls of the publisher that do not return, until ctx ends. It closes their
// topics, so that these take no more workers from other topics.
func (f *Forwarder) watch(ctx context.Context) {
	ticker := time.NewTicker(f.hangLook)
	defer ticker.Stop()
	told := map[string]bool{}
	var added time.Time // when more calls were allowed to hang
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		before := now.Add(-f.hangAfter)
		stuck := f.drainer.HungCalls(before)
		all, longest := 0, time.Duration(0)
		for _, calls := range stuck {
			all, longest = all+calls.Calls, max(longest, now.Sub(calls.Since))
		}
		may, more := f.drainer.MayHang(all, now.Sub(added) >= f.patience(longest))
		if more {
			added = now
		}
		for topic, calls := range stuck {
			f.relay.circuits.Hung(topic, calls.Latest, before, may)
			if told[topic] {
				continue
			}
			told[topic] = true
			f.logger.Error("Postbox waits for calls of the publisher that have not returned: this topic continues when one of them returns or another call succeeds, and other topics continue now, except for the keys of these messages, as far as Limits.MaxConcurrent allows, which counts these calls, too",
				fmt.Errorf("the publisher has not returned for %s", time.Since(calls.Since).Round(time.Second)),
				watermill.LogFields{"topic": topic, "calls": calls.Calls, "message_uuid": calls.MessageID})
		}
		f.drainer.ReplaceHung(before)
		for topic := range told {
			if _, still := stuck[topic]; !still {
				delete(told, topic)
				f.relay.circuits.Returned(topic)
				f.logger.Info("Postbox no longer waits for calls of the publisher, since they have returned", watermill.LogFields{"topic": topic})
			}
		}
	}
}
