package meter_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// notes is a recorder that notes each measurement.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) Record(i *metrics.Instrument, value float64, labels ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprint(strings.TrimPrefix(i.Name, "postbox."), " ", value, " ", strings.Join(labels, ",")))
}

func TestSpool_without_a_recorder_does_nothing(t *testing.T) { // not parallel, since it counts allocations
	none := meter.Of(nil, "outbox", watermill.NopLogger{})
	require.Nil(t, none)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		none.Begin()
		none.Stored("orders", 1)
		none.Ended(&spool.Message{}, meter.Done, time.Time{})
		none.Called("orders", 1, time.Second, true)
		none.Settled(time.Second)
		none.Read(nil)
		none.Holds(1, 1)
		none.Circuit("orders", true)
		meter.Delivered(nil, "billing", "orders", meter.Handled, true, nil)
	}))
}

// A rate that begins with the first event would not count it.
func TestSpool_series_of_a_topic_begin_at_zero_once(t *testing.T) {
	t.Parallel()
	recorder := &notes{}
	measured := meter.Of(recorder, "outbox", watermill.NopLogger{})
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { measured.Circuit("orders", true) })
	}
	calls.Wait()
	require.Len(t, recorder.lines, 5+1+8)
	for _, line := range recorder.lines[:5] {
		require.Contains(t, line, "messages.ended 0 outbox,outbox,orders,")
	}
	require.Equal(t, "circuit.open 0 outbox,outbox,orders", recorder.lines[5])
	for _, line := range recorder.lines[6:] {
		require.Equal(t, "circuit.open 1 outbox,outbox,orders", line)
	}
}

func TestSpool_latency_is_that_of_messages_that_never_waited(t *testing.T) {
	t.Parallel()
	stored := time.UnixMicro(1_000_000)
	recorder := &notes{}
	measured := meter.Of(recorder, spool.QueuePrefix+"mail", watermill.NopLogger{})
	measured.Begin()
	recorder.lines = nil
	measured.Ended(&spool.Message{Topic: "mail", CreatedAt: stored}, meter.Done, stored.Add(2*time.Second))
	measured.Ended(&spool.Message{Topic: "mail", CreatedAt: stored, Attempts: 3}, meter.Done, stored.Add(time.Hour))
	require.Equal(t, []string{
		"messages.ended 1 queue,mail,mail,done", "message.attempts 1 queue,mail,mail", "message.latency 2 queue,mail,mail",
		"messages.ended 1 queue,mail,mail,done", "message.attempts 4 queue,mail,mail",
	}, recorder.lines)
}

func TestGuarded_a_recorder_that_panics_or_is_a_nil_pointer_does_no_harm(t *testing.T) {
	t.Parallel()
	var none *notes
	require.Nil(t, meter.Of(none, "outbox", watermill.NopLogger{}))

	logger := watermill.NewCaptureLogger()
	panics := metrics.RecorderFunc(func(*metrics.Instrument, float64, ...string) { panic("full") })
	measured := meter.Of(panics, "outbox", logger)
	for range 3 {
		measured.Read(nil)
	}
	require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1)
}
