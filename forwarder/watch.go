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
)

// watch looks for calls of the publisher that do not return, until ctx ends. It closes their topics, so that these take no more workers from other topics.
func (f *Forwarder) watch(ctx context.Context) {
	ticker := time.NewTicker(f.hangLook)
	defer ticker.Stop()
	told := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		before := time.Now().Add(-f.hangAfter)
		stuck := f.drainer.Stuck(before)
		all := 0
		for _, calls := range stuck {
			all += calls.Calls
		}
		for topic, calls := range stuck {
			f.relay.circuits.Hung(topic, calls.Calls, all < f.config.Concurrency)
			if told[topic] {
				continue
			}
			told[topic] = true
			f.logger.Error("Postbox waits for calls of the publisher that have not returned: this topic continues when one of them returns, and other topics continue now, except for the keys of these messages",
				fmt.Errorf("the publisher has not returned for %s", time.Since(calls.Since).Round(time.Second)),
				watermill.LogFields{"topic": topic, "calls": calls.Calls, "message_uuid": calls.MessageID})
		}
		f.drainer.Replace(before)
		for topic := range told {
			if _, still := stuck[topic]; !still {
				delete(told, topic)
				f.logger.Info("Postbox no longer waits for calls of the publisher, since they have returned", watermill.LogFields{"topic": topic})
			}
		}
	}
}
