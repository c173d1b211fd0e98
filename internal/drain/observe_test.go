package drain_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// ends is a recorder that counts outcomes.
type ends struct {
	mu    sync.Mutex
	heard map[string]float64 // by topic and outcome
}

func (e *ends) Record(instrument *metrics.Instrument, value float64, labels ...string) {
	if instrument != instruments.Ended || value == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[labels[2]+" "+labels[3]] += value
}

func (e *ends) all() map[string]float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.heard)
}

// ownTopic is a draft of a message whose topic is its id.
func ownTopic(id string) spool.Draft {
	d := draft(id, "")
	d.Topic = id
	return d
}

func TestDrainer_reports_how_each_message_ended(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for head, last := range map[drain.HeadPolicy]string{drain.HeadSkip: "dead", drain.HeadPark: "parked"} {
			b := newBench(t, database)
			b.Append(database.DB, ownTopic("early"), ownTopic("good"), ownTopic("fails-twice"), ownTopic("bad"))
			handler := &recorder{}
			handler.do = func(m *spool.Message) error {
				switch tried := handler.tried(m.MessageID); {
				case m.MessageID == "fails-twice" && tried < 2:
					return errTest
				case m.MessageID == "bad":
					return postbox.Permanent(errTest)
				}
				return nil
			}
			heard := &ends{heard: map[string]float64{}}
			c := config("one")
			c.Meter, c.Head = meter.Of(heard, b.Spool.Name(), watermill.NopLogger{}), head
			r := b.start(database.DB, &early{recorder: handler}, c)
			want := map[string]float64{
				"good done": 1, "fails-twice retry": 2, "fails-twice done": 1, "bad " + last: 1, "early wait": 1, "early done": 1,
			}
			b.Eventually(func() bool { return len(heard.all()) == len(want) }, "all is heard")
			r.stop(t)
			require.Equal(t, want, heard.all())
			database.Exec(t, "DELETE FROM postbox_messages")
			database.Exec(t, "DELETE FROM postbox_dead_letters")
		}
	})
}

// reads is a recorder that counts reads that succeeded.
type reads struct{ heard atomic.Int64 }

func (r *reads) Record(instrument *metrics.Instrument, _ float64, _ ...string) {
	if instrument == instruments.LastRead {
		r.heard.Add(1)
	}
}

// A process whose memory is full of messages with slow handlers reads none, and is no process that
// reads nothing.
func TestDrainer_reports_that_it_reads_while_its_memory_is_full(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	const page, inMemory = 2, 6 // and each read before these finds one at least
	for i := range 2 * inMemory {
		b.Append(database.DB, draft(fmt.Sprint(i), ""))
	}
	slow, heard := make(chan struct{}), &reads{}
	handler := &recorder{do: func(*spool.Message) error {
		<-slow
		return nil
	}}
	c := config("one")
	c.PageSize, c.Workers = page, 1
	c.Meter = meter.Of(heard, b.Spool.Name(), watermill.NopLogger{})
	r := b.start(database.DB, handler, c)
	b.Eventually(func() bool { return heard.heard.Load() > inMemory+1 }, "it goes on reading the settings")
	close(slow)
	r.stop(t)
}

// early is a recorder to which the message "early" comes too early, once.
type early struct {
	*recorder
	came atomic.Bool
}

func (e *early) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	if batch[0].MessageID == "early" && e.came.CompareAndSwap(false, true) {
		return []spool.Outcome{{Verdict: spool.Wait, After: time.Millisecond}}
	}
	return e.recorder.Handle(ctx, batch)
}
