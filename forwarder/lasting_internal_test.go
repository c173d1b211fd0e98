package forwarder

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// refusing is a publisher that returns an error, if it has one.
type refusing struct{ err error }

func (r *refusing) Publish(string, ...*message.Message) error { return r.err }
func (r *refusing) Close() error                              { return nil }

// A single key never opens the circuit of its topic, so nothing else would say that its messages
// stand still.
func TestRelay_G7_logs_the_start_and_the_end_of_lasting_failures(t *testing.T) {
	t.Parallel()
	now := time.Now()
	logger := watermill.NewCaptureLogger()
	to := &refusing{err: errors.New("topic authorization failed")}
	r := &relay{publisher: to, classify: postbox.ClassifyNetwork, logger: logger, circuits: circuit.New(circuit.Config{
		FailuresInRow: circuit.FailuresInRow, ProbeMin: time.Second, ProbeMax: time.Minute, OutageLimit: circuit.OutageLimit,
		Now: func() time.Time { return now },
	}, func() {})}
	defer r.circuits.Stop()
	batch := slices.Repeat([]*spool.Message{{Topic: "orders", MessageID: "1"}}, 1)
	for range 60 {
		outcome := r.Handle(context.Background(), batch)[0]
		require.Equal(t, spool.Wait, outcome.Verdict)
		now = now.Add(outcome.After)
	}
	errs := logger.Captured()[watermill.ErrorLogLevel]
	require.Len(t, errs, 1)
	require.ErrorIs(t, errs[0].Err, to.err)
	require.Equal(t, "orders", errs[0].Fields["topic"])
	require.Empty(t, logger.Captured()[watermill.InfoLogLevel])
	to.err = nil
	for range 2 {
		require.Equal(t, spool.Done, r.Handle(context.Background(), batch)[0].Verdict)
	}
	require.Len(t, logger.Captured()[watermill.InfoLogLevel], 1)
}

// What is published once more, since its batch was refused, counts for the limits once more.
func TestRelay_asks_the_limits_before_it_publishes_a_message_again(t *testing.T) {
	t.Parallel()
	published := 0
	to := counting{&published}
	allowed := 2
	r := &relay{
		publisher: to, classify: func(error) postbox.ErrorClass { return postbox.Unclassified }, logger: watermill.NopLogger{},
		circuits: circuit.New(circuit.Config{FailuresInRow: circuit.FailuresInRow, ProbeMin: time.Second, ProbeMax: time.Minute, OutageLimit: circuit.OutageLimit}, func() {}),
		reload:   func(context.Context, *spool.Message) (bool, error) { return true, nil },
		repeat: func(_ context.Context, messages []*spool.Message) bool {
			allowed -= len(messages)
			return allowed >= 0
		},
	}
	defer r.circuits.Stop()
	var batch []*spool.Message
	for _, id := range []string{"1", "2", "3", "4"} {
		batch = append(batch, &spool.Message{Topic: "orders", MessageID: id})
	}
	var verdicts []spool.Verdict
	for _, outcome := range r.Handle(t.Context(), batch) {
		verdicts = append(verdicts, outcome.Verdict)
	}
	require.Equal(t, []spool.Verdict{spool.Done, spool.Done, spool.Postpone, spool.Postpone}, verdicts)
	require.Equal(t, 2, published, "by itself")
}

// counting refuses batches, and counts the messages that it gets by themselves.
type counting struct{ published *int }

func (c counting) Close() error { return nil }

func (c counting) Publish(_ string, messages ...*message.Message) error {
	if len(messages) > 1 {
		return errors.New("one of them is refused")
	}
	*c.published++
	return nil
}
