package admin_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// counting is a logger that counts the errors with a text.
type counting struct {
	watermill.NopLogger

	text string
	said atomic.Int32
}

func (c *counting) Error(text string, _ error, _ watermill.LogFields) {
	if text == c.text {
		c.said.Add(1)
	}
}

func (c *counting) With(watermill.LogFields) watermill.LoggerAdapter { return c }

// Two services that both have the default name for their outbox share one, and each publishes some
// of the other's messages. Both logs say so at once, and so does what operators see.
// nowhere is a publisher that takes all messages.
type nowhere struct{}

func (*nowhere) Publish(string, ...*message.Message) error { return nil }
func (*nowhere) Close() error                              { return nil }

// run starts a forwarder, which ends with the test.
func run(t *testing.T, database postbox.Database, config forwarder.Config, log watermill.LoggerAdapter) {
	t.Helper()
	fwd, err := forwarder.New(database, &nowhere{}, config, log)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = fwd.Close()
		require.NoError(t, <-done)
	})
}

func TestForwarder_says_that_another_one_publishes_to_something_else(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		const text = "Postbox shares messages with processes of another kind"
		start := func(destination string) *counting {
			log := &counting{text: text}
			run(t, database.On(database.Open(t)), forwarder.Config{Destination: destination}, log)
			return log
		}
		shop := start("kafka of the shop")
		same := start("kafka of the shop")
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		work := func(processes int) (work []string) {
			require.Eventually(t, func() bool {
				queues, err := operator.Queues(t.Context())
				require.NoError(t, err)
				if len(queues) != 1 || queues[0].Processes != processes {
					return false
				}
				work = queues[0].Work
				return true
			}, patience, testdb.PollPause, "they are there")
			return work
		}
		require.Equal(t, []string{"kafka of the shop"}, work(2))
		require.Zero(t, shop.said.Load()+same.said.Load(), "they do the same")

		bank := start("kafka of the bank")
		require.Equal(t, []string{"kafka of the bank", "kafka of the shop"}, work(3))
		for _, log := range []*counting{shop, same, bank} {
			require.Eventually(t, func() bool { return log.said.Load() == 1 }, patience, testdb.PollPause, "it is said once")
		}
	})
}

// Without a Destination, the program and the type of the publisher tell forwarders apart.
func TestForwarder_tells_publishers_apart_by_their_type(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	run(t, database.Postbox(), forwarder.Config{}, nil)
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		queues, err := operator.Queues(t.Context())
		require.NoError(t, err)
		return len(queues) == 1 && len(queues[0].Work) == 1 && queues[0].Work[0] == "github.com/postbox-go/watermill-postbox/admin.test publishes through *admin_test.nowhere"
	}, patience, testdb.PollPause, "it is said")
}
