package forwarder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// The reader of the log reads nothing while it waits for the broker, so messages of other topics wait, too.
const (
	// directStarts is for how long calls are started. With a slow broker, messages that are left get rows.
	directStarts = time.Second
	// directPatience is how long all calls may take. A message whose call has not returned by then gets a row, and is
	// published again.
	directPatience = 5 * time.Second
)

// direct publishes messages of the log that have no row.
type direct struct {
	relay       *relay
	limited     bool // the configuration has limits
	concurrency int
	starts      time.Duration
	patience    time.Duration

	mu   sync.Mutex
	late map[string]int // calls that did not return in time and still run, by topic
}

func newDirect(r *relay, config Config) *direct {
	return &direct{
		relay: r, limited: !config.Limits.None(), concurrency: config.Concurrency,
		starts: directStarts, patience: directPatience, late: map[string]int{},
	}
}

// Publish is for the reader of the log.
func (d *direct) Publish(ctx context.Context, batch []*spool.Message, settings spool.Settings) (acknowledged []bool) {
	r := &round{direct: d, batch: batch, groups: byKey(batch), acknowledged: make([]bool, len(batch)), running: map[string]int{}}
	if !d.allows(settings) {
		return r.acknowledged
	}
	ctx, stop := context.WithTimeout(ctx, d.starts)
	defer stop()
	called, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience) // a call that runs when ctx ends may succeed
	defer cancel()
	workers := d.concurrency
	if settings.Concurrency > 0 {
		workers = settings.Concurrency
	}
	ended := make(chan struct{})
	var working sync.WaitGroup
	for range min(workers, len(r.groups)) {
		working.Go(func() { r.work(ctx, called) })
	}
	go func() {
		defer close(ended)
		working.Wait()
	}()
	select {
	case <-ended:
	case <-called.Done():
	}
	acknowledged, late := r.end()
	for topic, calls := range late {
		d.lag(topic, calls)
	}
	d.observe(batch, acknowledged)
	return acknowledged
}

// allows reports whether messages need no row. Shares of limits belong to lanes, and the history is made of rows.
func (d *direct) allows(settings spool.Settings) bool {
	return !d.limited && settings.PerSecond <= 0 && settings.AtOnce <= 0 && settings.History <= 0
}

// open reports whether messages of a topic may be published. While it has an outage, the rows probe it.
func (d *direct) open(topic string) bool {
	d.mu.Lock()
	late := d.late[topic]
	d.mu.Unlock()
	return late == 0 && !d.relay.circuits.Open(topic)
}

// observe reports messages that are done.
func (d *direct) observe(batch []*spool.Message, acknowledged []bool) {
	tally := d.relay.meter.Tally(time.Now())
	for i, m := range batch {
		if acknowledged[i] {
			tally.Ended(m, meter.Done)
		}
	}
	tally.Report()
}

// byKey returns the positions of the messages of each key, and of each message without a key.
func byKey(batch []*spool.Message) (groups [][]int) {
	of := map[string]int{}
	for i, m := range batch {
		at, known := of[m.Key]
		if !m.HasKey || !known {
			at, groups = len(groups), append(groups, nil)
		}
		if m.HasKey {
			of[m.Key] = at
		}
		groups[at] = append(groups[at], i)
	}
	return groups
}

// round is one call of Publish. Calls of the broker may outlive it.
type round struct {
	direct *direct
	batch  []*spool.Message
	groups [][]int

	mu           sync.Mutex
	next         int // the group to begin next
	over         bool
	acknowledged []bool
	running      map[string]int // calls, by topic
}

// work publishes groups until none is left. After a message that the broker has not acknowledged, the later ones of its
// key are not published.
func (r *round) work(ctx, called context.Context) {
	for group := r.take(ctx); group != nil; group = r.take(ctx) {
		for _, i := range group {
			if !r.publish(ctx, called, i) {
				break
			}
		}
	}
}

func (r *round) take(ctx context.Context) (group []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || ctx.Err() != nil || r.next == len(r.groups) {
		return nil
	}
	group = r.groups[r.next]
	r.next++
	return group
}

// publish publishes the message at a position.
func (r *round) publish(ctx, called context.Context, i int) bool {
	topic := r.batch[i].Topic
	if !r.direct.open(topic) || !r.begin(ctx, topic) {
		return false
	}
	acknowledged := r.direct.relay.direct(called, r.batch[i])
	return r.record(i, acknowledged) && acknowledged
}

func (r *round) begin(ctx context.Context, topic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || ctx.Err() != nil {
		return false
	}
	r.running[topic]++
	return true
}

// record takes in the end of a call. It reports false if that came too late.
func (r *round) record(i int, acknowledged bool) bool {
	topic := r.batch[i].Topic
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		r.direct.count(topic, -1)
		return false
	}
	r.running[topic]--
	r.acknowledged[i] = acknowledged
	return true
}

// end returns what was acknowledged by now, and the calls that still run, by topic.
func (r *round) end() (acknowledged []bool, late map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return slices.Clone(r.acknowledged), maps.Clone(r.running)
}

// lag notes and logs calls that did not return in time.
func (d *direct) lag(topic string, calls int) {
	if calls == 0 {
		return
	}
	d.count(topic, calls)
	d.relay.logger.Error("Postbox stores messages of the log as rows, since the publisher does not return: it publishes them again, and stores all messages of this topic until the calls return",
		fmt.Errorf("the publisher has not returned for %s", d.patience), watermill.LogFields{"topic": topic, "calls": calls})
}

// count adds to the number of late calls of a topic. A call may return before it was noted.
func (d *direct) count(topic string, calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late[topic] += calls; d.late[topic] == 0 {
		delete(d.late, topic)
	}
}
