package forwarder_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// hanging is a publisher whose calls for one topic do not return until the test says so.
type hanging struct {
	broker
	proceed chan struct{}

	callsMu sync.Mutex
	calls   int // that hung
}

func (h *hanging) Publish(topic string, messages ...*message.Message) error {
	if topic == "hangs" {
		h.callsMu.Lock()
		h.calls++
		h.callsMu.Unlock()
		<-h.proceed
	}
	return h.broker.Publish(topic, messages...)
}

func (h *hanging) hung() int {
	h.callsMu.Lock()
	defer h.callsMu.Unlock()
	return h.calls
}

// waits is logged for a topic with calls that do not return.
const waits = "Postbox waits for calls of the publisher that have not returned: this topic continues when one of them returns or another call succeeds, and other topics continue now, except for the keys of these messages, as far as Limits.MaxConcurrent allows, which counts these calls, too"

// said is a logger that keeps its lines, by their text.
type said struct {
	watermill.NopLogger
	mu    sync.Mutex
	lines map[string][]watermill.LogFields
}

func (s *said) keep(text string, fields watermill.LogFields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == nil {
		s.lines = map[string][]watermill.LogFields{}
	}
	s.lines[text] = append(s.lines[text], fields)
}

func (s *said) with(text string) []watermill.LogFields {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[text]
}

func (s *said) Error(text string, _ error, fields watermill.LogFields) { s.keep(text, fields) }
func (s *said) Info(text string, fields watermill.LogFields)           { s.keep(text, fields) }
func (s *said) With(watermill.LogFields) watermill.LoggerAdapter       { return s }

func TestForwarder_G7_a_topic_whose_publisher_hangs_is_logged_and_others_go_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const workers, hang, more = 3, 20, 50
		to := &hanging{proceed: make(chan struct{})}
		log := &said{}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.Concurrency = workers }, log)
		const patience = 300 * time.Millisecond
		fwd.Impatient(patience)
		began := time.Now()
		publisher := publisherFor(t, database, nil)
		publish := func(topic string, n int) {
			messages := []*message.Message{}
			for i := range n {
				messages = append(messages, newMessage(fmt.Sprintf("%s %d", topic, i), ""))
			}
			inTx(t, database.DB, publisher, topic, messages...)
		}
		publish("hangs", hang)
		run(t, fwd)
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		eventually(t, func() bool { return to.hung() >= workers }, "all workers wait")
		publish("goes on", more)
		eventually(t, func() bool { return len(to.ids()) == more }, "the other topic goes on")
		require.LessOrEqual(t, to.hung(), workers+int(time.Since(began)/patience), "one more call tries at a time")

		lines := log.with(waits)
		require.Len(t, lines, 1)
		require.Equal(t, "hangs", lines[0]["topic"])
		require.Contains(t, lines[0]["message_uuid"], "hangs ")
		proceed()
		eventually(t, func() bool { return len(to.ids()) == more+hang }, "the topic goes on when its calls return")
		eventually(t, func() bool {
			return len(log.with("Postbox no longer waits for calls of the publisher, since they have returned")) == 1
		}, "its end is logged")
		eventually(t, func() bool { return pending(t, database) == 0 }, "nothing is published again")
	})
}

// loses is a broker that never answers some calls, and then works.
type loses struct {
	broker
	calls   chan struct{} // one for each that is not answered
	proceed chan struct{}
	fails   atomic.Bool // what is answered is an error
}

func (l *loses) Publish(topic string, messages ...*message.Message) error {
	select {
	case <-l.calls:
		<-l.proceed
		return errBroker
	default:
		if l.fails.Load() {
			return errBroker
		}
		return l.broker.Publish(topic, messages...)
	}
}

func TestForwarder_G7_a_topic_goes_on_although_its_probe_hangs_too(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &loses{calls: make(chan struct{}, 2), proceed: make(chan struct{})}
		to.calls <- struct{}{}
		to.calls <- struct{}{}
		log := &said{}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.Concurrency, c.BatchSize = 8, 1 }, log)
		fwd.Impatient(300 * time.Millisecond)
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", newMessage("first", ""))
		run(t, fwd)
		t.Cleanup(func() { close(to.proceed) })
		eventually(t, func() bool { return len(log.with(waits)) == 1 }, "the topic is closed")
		inTx(t, database.DB, publisher, "topic", newMessage("second", ""))
		eventually(t, func() bool { return len(to.calls) == 0 }, "the call that tries hangs")
		for n := range 5 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint("later ", n), ""))
		}
		eventually(t, func() bool { return len(to.ids()) == 5 }, "the topic goes on")
	})
}

// All workers hang, and so do several probes. None of these calls ever returns, but the broker is
// back.
func TestForwarder_G7_a_topic_goes_on_although_more_calls_hang_than_may_run(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const workers, hang = 2, 2*2 + 2 // more than the extra workers, too
		to := &loses{calls: make(chan struct{}, hang), proceed: make(chan struct{})}
		for range hang {
			to.calls <- struct{}{}
		}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.Concurrency, c.BatchSize = workers, 1 }, &said{})
		fwd.Impatient(100 * time.Millisecond)
		publisher := publisherFor(t, database, nil)
		for n := range hang + 3 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint("message ", n), ""))
		}
		run(t, fwd)
		t.Cleanup(func() { close(to.proceed) })
		eventually(t, func() bool { return len(to.ids()) == 3 }, "the topic goes on")
		require.Empty(t, to.calls)
		inTx(t, database.DB, publisher, "other", newMessage("other", ""))
		eventually(t, func() bool { return len(to.ids()) == 4 }, "so do others")
	})
}

func TestForwarder_G7_a_topic_goes_on_although_a_probe_hangs_after_a_call_that_has_returned(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &loses{calls: make(chan struct{}, 1), proceed: make(chan struct{})}
		to.calls <- struct{}{}
		log := &said{}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) {
			c.Concurrency, c.BatchSize = 8, 1
			c.Classify = func(error) postbox.ErrorClass { return postbox.Outage } // so one message probes at a time
		}, log)
		fwd.Impatient(300 * time.Millisecond)
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", newMessage("first", ""))
		run(t, fwd)
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		eventually(t, func() bool { return len(log.with(waits)) > 0 }, "the topic is closed")
		to.fails.Store(true)
		to.proceed <- struct{}{}
		eventually(t, func() bool {
			return len(log.with("Postbox no longer waits for calls of the publisher, since they have returned")) > 0
		}, "the call has returned")
		before := len(log.with(waits)) // a busy machine may delay other calls for as long
		to.calls <- struct{}{}
		eventually(t, func() bool { return len(log.with(waits)) > before }, "a call that tries hangs")
		to.fails.Store(false)
		for n := range 5 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint("later ", n), ""))
		}
		eventually(t, func() bool { return len(to.ids()) == 5 }, "the topic goes on")
	})
}

// Calls that hang have as many messages as fit into the memory. They take no room from others.
func TestForwarder_G7_topics_go_on_although_many_messages_are_in_calls_that_hang(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const size, hang, more = 10, 6 * 10, 50
		to := &hanging{proceed: make(chan struct{})}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.Concurrency, c.BatchSize, c.PageSize = 8, size, size }, &said{})
		fwd.Impatient(300 * time.Millisecond)
		publisher := publisherFor(t, database, nil)
		for n := range hang {
			inTx(t, database.DB, publisher, "hangs", newMessage(fmt.Sprint("hangs ", n), ""))
		}
		run(t, fwd)
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		eventually(t, func() bool { return fwd.InFlight()["hangs"] > 2*size-size/2 }, "their messages leave no room for a page")
		for n := range more {
			inTx(t, database.DB, publisher, "goes on", newMessage(fmt.Sprint("goes on ", n), ""))
		}
		eventually(t, func() bool { return len(to.ids()) == more }, "the other topic goes on")
		proceed()
		eventually(t, func() bool { return pending(t, database) == 0 }, "so does this one")
	})
}

// A call hangs, and its key has more messages than fit into the memory. They take no room from
// others, and go on in their order when it returns. Also covers G3.
func TestForwarder_G7_topics_go_on_although_many_messages_wait_behind_a_call_that_hangs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const size, hang, more = 10, 6 * 10, 50
		to := &hanging{proceed: make(chan struct{})}
		fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.BatchSize, c.PageSize = 1, size }, &said{})
		fwd.Impatient(300 * time.Millisecond)
		publisher := publisherFor(t, database, nil)
		var inOrder []string
		for n := range hang {
			inOrder = append(inOrder, fmt.Sprint("hangs ", n))
			inTx(t, database.DB, publisher, "hangs", newMessage(inOrder[n], "key"))
		}
		run(t, fwd)
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		eventually(t, func() bool { return to.hung() == 1 }, "it hangs")
		for n := range more {
			inTx(t, database.DB, publisher, "goes on", newMessage(fmt.Sprint("goes on ", n), ""))
		}
		eventually(t, func() bool { return len(to.ids()) == more }, "the other topic goes on")
		proceed()
		eventually(t, func() bool { return pending(t, database) == 0 }, "so does this key")
		require.Equal(t, inOrder, to.ids()[more:])
		require.Len(t, to.all(), more+hang, "each is published once")
	})
}

// Calls hang in all lanes of a process, and another process joins. The first one cannot hand back a
// lane with such a call, so it goes on with the other keys of the lane. Also covers G3.
func TestForwarder_G7_keys_go_on_although_a_call_hangs_in_a_lane_that_another_process_should_have(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const hang, more = 40, 50
		to := &hanging{proceed: make(chan struct{})}
		start := func() *forwarder.Forwarder {
			fwd := forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.Concurrency, c.BatchSize = hang, 1 }, &said{})
			fwd.Impatient(time.Second)
			run(t, fwd)
			return fwd
		}
		publisher := publisherFor(t, database, nil)
		for n := range hang {
			inTx(t, database.DB, publisher, "hangs", newMessage(fmt.Sprint("hangs ", n), fmt.Sprint("hangs ", n)))
		}
		one := start()
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		eventually(t, func() bool { return one.InFlight()["hangs"] == hang }, "they hang in each lane")
		<-start().Running()
		for n := range more {
			inTx(t, database.DB, publisher, "goes on", newMessage(fmt.Sprint("goes on ", n), fmt.Sprint("goes on ", n)))
		}
		eventually(t, func() bool { return len(to.ids()) == more }, "other keys go on")
		proceed()
		eventually(t, func() bool { return pending(t, database) == 0 }, "so do these")
		require.Len(t, to.all(), more+hang, "each is published once")
	})
}

// A broker does not answer for so long that processes are stopped and started meanwhile. That is an
// outage, and no reason to take the message for one that crashes its process.
func TestForwarder_G7_a_call_that_hangs_when_processes_stop_counts_no_start(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const attempts = 2
		to := &hanging{proceed: make(chan struct{})}
		start := func() *forwarder.Forwarder {
			fwd := forwarderFor(t, database, to, func(c *forwarder.Config) { c.CloseTimeout, c.Retry.Attempts = time.Millisecond, attempts })
			run(t, fwd)
			return fwd
		}
		proceed := sync.OnceFunc(func() { close(to.proceed) })
		t.Cleanup(proceed)
		inTx(t, database.DB, publisherFor(t, database, nil), "hangs", newMessage("message", ""))
		for stops := range attempts + 2 {
			fwd := start()
			eventually(t, func() bool { return to.hung() > stops || pending(t, database) == 0 }, "it hangs")
			require.Equal(t, 1, pending(t, database), "it is no dead letter")
			require.NoError(t, fwd.Close())
			require.Zero(t, database.Count(t, "SELECT starts FROM postbox_messages"))
			database.Exec(t, "UPDATE postbox_members SET expires_at = 0")
		}
		proceed()
		start()
		eventually(t, func() bool { return pending(t, database) == 0 }, "it is published when the broker answers")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}
