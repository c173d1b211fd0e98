package forwarder_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// refusing is a broker that fails for messages whose UUID begins with "poison", for a reason that
// nobody knows.
func refusing() *broker {
	return &broker{fail: func(_ string, msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "poison") {
			return errBroker
		}
		return nil
	}}
}

// traffic publishes a message of its own key now and then, until the test ends.
func traffic(t *testing.T, database *testdb.Database) {
	t.Helper()
	publisher := publisherFor(t, database, nil)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				err := postbox.InTx(context.Background(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
					msg := newMessage(fmt.Sprintf("traffic %d", i), "")
					msg.SetContext(ctx)
					return publisher.Publish("topic", msg)
				})
				if err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
}

func TestForwarder_many_poison_messages_let_others_through_and_end(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				database.Migrate(t)
				to := refusing()
				publisher := publisherFor(t, database, nil)
				for i := range 40 {
					inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("poison %d", i), fmt.Sprint("bad ", i)))
				}
				for i := range 20 {
					inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("good %d", i), fmt.Sprint("good ", i)))
				}
				run(t, forwarderFor(t, database, to, func(c *forwarder.Config) {
					c.BatchSize, c.Concurrency, c.Retry.Attempts = batch, 4, 3
				}))
				// Each of them is a sign of life, so the others may have attempts, or be dead, by
				// then.
				eventually(t, func() bool { return len(to.ids()) == 20 }, "the good ones get through")
				traffic(t, database)
				eventually(t, func() bool { return dead(t, database) == 40 }, "the others end")
				require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE attempts <> 3"))
			})
		})
	}
}

func TestForwarder_G7_unknown_errors_of_an_outage_make_no_dead_letter(t *testing.T) {
	t.Parallel()
	for _, messages := range []int{1, 3, 300} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				database.Migrate(t)
				var tries atomic.Int32
				to := &broker{}
				to.fail = func(string, *message.Message) error {
					if tries.Add(1) < 50 {
						return errBroker
					}
					return nil
				}
				publisher := publisherFor(t, database, nil)
				for i := range messages {
					inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint(i), fmt.Sprint(i%100)))
				}
				run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Retry.Attempts = 2 }))
				eventually(t, func() bool { return pending(t, database) == 0 }, "all get through")
				require.Zero(t, dead(t, database))
				require.Len(t, to.ids(), messages)
				require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"))
			})
		})
	}
}

func TestForwarder_poison_alone_ends_after_the_outage_limit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		for i := range 10 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprintf("poison %d", i), ""))
		}
		run(t, forwarderFor(t, database, refusing(), func(c *forwarder.Config) {
			c.OutageLimit, c.Retry.Attempts = 300*time.Millisecond, 2
		}))
		eventually(t, func() bool { return dead(t, database) == 10 }, "they end")
		require.Zero(t, pending(t, database))
	})
}

// A message whose failure is taken for an outage does not stand in the way of the others: the next
// probe is another message.
func TestForwarder_probes_of_a_known_outage_take_turns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		to := &broker{fail: func(_ string, msg *message.Message) error {
			if msg.UUID == "kills the connection" {
				return syscall.ECONNRESET
			}
			return nil
		}}
		publisher := publisherFor(t, database, nil)
		inTx(t, database.DB, publisher, "topic", newMessage("kills the connection", "key"))
		for i := range 20 {
			inTx(t, database.DB, publisher, "topic", newMessage(fmt.Sprint(i), "other"))
		}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.Concurrency = 1 }))
		eventually(t, func() bool { return pending(t, database) == 1 }, "the others get through")
		require.Len(t, to.ids(), 20)
		require.Zero(t, dead(t, database))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))
	})
}

// Where the reason is unknown, probes go over all keys and over all that waits: no message is tried
// again and again while others wait.
func TestForwarder_probes_of_unknown_failures_take_turns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const poison, good, rounds = 16, 8, 10
		var mu sync.Mutex
		tries, most, behindThem := map[string]int{}, 0, 0
		to := &broker{}
		to.fail = func(_ string, msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			tries[msg.UUID]++
			most = max(most, tries[msg.UUID])
			if !strings.HasPrefix(msg.UUID, "poison") {
				behindThem = most
				return nil
			}
			return errBroker
		}
		publisher := publisherFor(t, database, nil)
		for i := range poison + good {
			id := fmt.Sprintf("poison %d", i)
			if i >= poison {
				id = fmt.Sprintf("good %d", i)
			}
			inTx(t, database.DB, publisher, "topic", newMessage(id, id))
		}
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { // pauses that are longer than a read of all messages
			c.Concurrency, c.ProbeMin, c.ProbeMax, c.Retry.Attempts = 1, 20*time.Millisecond, 50*time.Millisecond, 100
		}))
		eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return most >= rounds
		}, "the poisonous ones are tried some times")
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, to.ids(), good)
		require.LessOrEqual(t, behindThem, 5, "nothing is tried again and again while good messages wait")
		for i := range poison {
			require.GreaterOrEqual(t, tries[fmt.Sprintf("poison %d", i)], rounds/3, "%v", tries)
		}
	})
}

// openings is a log of which the first error that begins with a text is of interest.
type openings struct {
	watermill.NopLogger

	said   string
	fields chan watermill.LogFields
}

func (o openings) With(watermill.LogFields) watermill.LoggerAdapter { return o }

func (o openings) Error(msg string, _ error, fields watermill.LogFields) {
	if strings.HasPrefix(msg, o.said) {
		select {
		case o.fields <- fields:
		default:
		}
	}
}

// An operator reads in the log which message opens the circuit of its topic again and again.
func TestForwarder_names_the_message_with_which_an_outage_begins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		said string
	}{
		"known":   {syscall.ECONNRESET, "Postbox cannot reach the broker"},
		"unknown": {errBroker, "Postbox pauses a topic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := testdb.SQLite(t)
			database.Migrate(t)
			inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("kills the connection", ""))
			logger := openings{said: c.said, fields: make(chan watermill.LogFields, 1)}
			to := &broker{fail: func(string, *message.Message) error { return c.err }}
			run(t, forwarderWithLog(t, database, to, func(c *forwarder.Config) { c.FailuresInRow = 1 }, logger))
			var fields watermill.LogFields
			select {
			case fields = <-logger.fields:
			case <-time.After(patience):
				require.FailNow(t, "nothing is said")
			}
			require.Equal(t, "topic", fields["topic"])
			require.Equal(t, "kills the connection", fields["message_uuid"])
		})
	}
}

// Until the dead letter of a message is written another process may have to publish it, and must do
// so before the next message of its key.
func TestForwarder_G3_next_message_of_a_key_waits_for_the_dead_letter_before_it(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		var letters []int
		to := &broker{fail: func(_ string, msg *message.Message) error {
			switch msg.UUID {
			case "dead":
				return postbox.Permanent(errBroker)
			case "behind":
				letters = append(letters, dead(t, database))
			}
			return nil
		}}
		inTx(t, database.DB, publisherFor(t, database, nil), "topic",
			newMessage("before", "key"), newMessage("dead", "key"), newMessage("behind", "key"), newMessage("beside", "other"))
		run(t, forwarderFor(t, database, to, func(c *forwarder.Config) { c.BatchSize, c.Concurrency = 10, 1 }))
		eventually(t, func() bool { return pending(t, database) == 0 }, "all are settled")
		require.True(t, slices.Contains(to.ids(), "behind"))
		require.NotContains(t, letters, 0, "its dead letter was there each time")
	})
}
