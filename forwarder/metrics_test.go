package forwarder_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// In an outage most messages are put back without a call, and a stop leaves nothing open.
func TestForwarder_measures_the_calls_of_its_publisher_alone(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	var mu sync.Mutex
	measured, open, lanes := 0, map[float64]bool{}, 0.0
	described := database.Postbox()
	described.Metrics = instruments.RecorderFunc(func(i *metrics.Instrument, value float64, _ ...string) {
		mu.Lock()
		defer mu.Unlock()
		switch i {
		case instruments.Published:
			measured++
		case instruments.CircuitOpen:
			open = map[float64]bool{value: true}
		case instruments.LanesHeld:
			lanes = value
		}
	})
	var messages []*message.Message
	for i := range 300 {
		messages = append(messages, newMessage(fmt.Sprint(i), ""))
	}
	inTx(t, database.DB, publisherFor(t, database, nil), "topic", messages...)
	var calls atomic.Int64
	away := &publishing{calls: make(chan []*message.Message, 10_000), do: func([]*message.Message) error {
		calls.Add(1)
		return syscall.ECONNREFUSED
	}}
	fwd, err := forwarder.New(described, away, forwarder.Config{Tuning: postbox.Tuning{ProbeMin: time.Millisecond, ProbeMax: 2 * time.Millisecond}}, nil)
	require.NoError(t, err)
	run(t, fwd)
	require.Eventually(t, func() bool { return calls.Load() > 100 }, time.Minute, testdb.PollPause)
	require.NoError(t, fwd.Close())
	require.EqualValues(t, calls.Load(), measured)
	require.Equal(t, map[float64]bool{0: true}, open, "a forwarder that has stopped sees no outage")
	require.Zero(t, lanes, "and holds no lanes")
}
