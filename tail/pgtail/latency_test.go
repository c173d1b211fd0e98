package pgtail_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/forwarder"
)

// clocked notes when each message was published.
type clocked struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (c *clocked) Publish(_ string, messages ...*message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		if _, known := c.at[m.UUID]; !known {
			c.at[m.UUID] = time.Now()
		}
	}
	return nil
}

func (c *clocked) Close() error { return nil }

// The time from a commit until the message is published, at 100 messages a second, by the log and by LISTEN.
func TestTail_latency(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures")
	}
	w := newWorld(t)
	for name, config := range map[string]forwarder.Config{"log": {Tail: w.tail()}, "listen": {ListenDSN: w.DSN}, "none": {}} {
		c := &clocked{at: map[string]time.Time{}}
		f := w.start(c, config)
		if config.Tail != nil {
			w.follows(f)
		}
		<-f.Running()
		committed := map[string]time.Time{}
		ticker := time.NewTicker(10 * time.Millisecond)
		messages, ids := numbered(name, 500)
		for _, m := range messages {
			<-ticker.C
			w.publish("orders", m)
			committed[m.UUID] = time.Now()
		}
		var took []time.Duration
		w.eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.at) >= len(ids) }, "all")
		for _, id := range ids {
			took = append(took, c.at[id].Sub(committed[id]))
		}
		slices.Sort(took)
		t.Logf("%s: p50 %s p99 %s", name, took[len(took)/2], took[len(took)*99/100])
		f.stop(t)
	}
}
