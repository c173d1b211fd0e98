package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// A publisher may wait for its broker for ever, and its call then blocks a worker. If a topic has
// more messages than there are workers, all workers would come to wait like this, and no other
// topic would be published. So the owner of a drainer asks now and then for calls that have not
// returned for long, and closes their topic. Each worker that such a call blocks is replaced, by at
// most as many as there are workers. If more calls hang, theirs are replaced after a pause, or a
// topic whose probes hang would never go on although its broker is back.

// Hung describes the calls of a topic that have not returned for long.
type Hung struct {
	Calls     int
	Since     time.Time // when the first of these calls began
	Latest    time.Time // when the last of them began
	ID        int64     // of the first message of that call
	MessageID string
}

// HungCalls returns the topics with calls of the handler that began before the given time and have
// not returned.
func (c *core) HungCalls(before time.Time) map[string]Hung {
	found := map[string]Hung{}
	c.scheduler.EachHung(before, func(e *schedule.Entry) {
		topic := found[e.Message.Topic]
		topic.Calls++
		if e.Begun.After(topic.Latest) {
			topic.Latest = e.Begun
		}
		if topic.Calls == 1 || e.Begun.Before(topic.Since) {
			topic.Since, topic.ID, topic.MessageID = e.Begun, e.Message.Ref.ID, e.Message.MessageID
		}
		found[e.Message.Topic] = topic
	})
	return found
}

// longCall returns the call that has not returned for longest, for the heartbeat, or nil if all
// calls are shorter than two heartbeats.
func (c *core) longCall() *spool.Call {
	var longest *spool.Call
	for topic, calls := range c.HungCalls(time.Now().Add(-2 * c.config.Renew)) {
		if longest == nil || calls.Since.Before(longest.Since) {
			longest = &spool.Call{Since: calls.Since, Topic: topic, ID: calls.ID, MessageID: calls.MessageID}
		}
	}
	return longest
}

// MayHang reports whether the worker of each of so many calls may be replaced. If not, and more is
// true, they may be from now on, until all have returned.
func (c *core) MayHang(calls int, more bool) (may, added bool) {
	return c.scheduler.MayHang(calls, more)
}

// ReplaceHung starts other workers for those that are blocked by calls of [Drainer.HungCalls].
// Close the topics of these calls first, or the new workers would come to wait in the same way.
func (d *Drainer) ReplaceHung(before time.Time) {
	for range d.scheduler.ReplaceHung(before) {
		d.workers.running.Go(func() { d.workers.work(d.workers.handling) })
	}
}
