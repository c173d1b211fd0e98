package drain

import (
	"time"

	"github.com/postbox-go/watermill-postbox/internal/schedule"
)

// A publisher may wait for its broker for ever, and then its call keeps a worker. If a topic has more messages than there are workers, all of them would come to wait like this, and
// nothing else would be published. So the owner of a drainer asks now and then for calls that have not returned for long, and closes their topic. Each
// worker that such a call keeps is replaced, by as many as there are workers at most.

// Stuck is what is known of the calls of a topic that have not returned for long.
type Stuck struct {
	Calls     int
	Since     time.Time // when the first of them began
	MessageID string    // of its first message
}

// Stuck returns the topics that have calls of the handler which began before that time and have not returned.
func (d *Drainer) Stuck(before time.Time) map[string]Stuck {
	found := map[string]Stuck{}
	d.scheduler.EachStuck(before, func(e *schedule.Entry) {
		topic := found[e.Message.Topic]
		topic.Calls++
		if topic.Calls == 1 || e.Begun.Before(topic.Since) {
			topic.Since, topic.MessageID = e.Begun, e.Message.MessageID
		}
		found[e.Message.Topic] = topic
	})
	return found
}

// Replace lets other workers take the places of those that have calls of [Drainer.Stuck]. Close their topics first, or the others would come to wait in the same way.
func (d *Drainer) Replace(before time.Time) {
	for range d.scheduler.ReplaceStuck(before) {
		d.workers.Go(func() { d.work(d.handling) })
	}
}
