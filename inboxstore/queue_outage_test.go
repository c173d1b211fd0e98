package inboxstore_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

var errAway = errors.New("the service is away")

// awayIsOutage tells an outage of what the handler needs.
func awayIsOutage(c *inboxstore.QueueConfig) {
	c.Classify = func(err error) postbox.ErrorClass {
		if errors.Is(err, errAway) {
			return postbox.Outage
		}
		return postbox.Unclassified
	}
}

// The probe succeeds, but its message is not this process's any more: the queue must go on nevertheless.
func TestQueue_F13_G6_probe_of_an_outage_loses_its_lease(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		b.put("1")
		var calls atomic.Int32
		config := quick(awayIsOutage)
		config.Transactional = true
		b.start(config, func(msg *message.Message) error {
			switch calls.Add(1) {
			case 1:
				return errAway
			case 2:
				b.Exec(t, "UPDATE postbox_lanes SET token = token + 1")
			}
			return b.effect(msg.Context(), msg)
		})
		b.drained()
		require.Equal(t, []string{"1"}, b.effects())
	}
}
