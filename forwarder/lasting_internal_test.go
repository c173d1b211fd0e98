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
