package forwarder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// scripted is a publisher that does what a function says, and remembers what it has published.
type scripted struct {
	do func(m *message.Message) error

	mu  sync.Mutex
	got []string
}

func (s *scripted) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := s.do(m); err != nil {
			return err
		}
		s.mu.Lock()
		s.got = append(s.got, m.UUID)
		s.mu.Unlock()
	}
	return nil
}

func (s *scripted) Close() error { return nil }

func (s *scripted) published() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

// directTo returns a direct with one worker.
func directTo(t *testing.T, to *scripted) *direct {
	t.Helper()
	r := &relay{publisher: to, classify: postbox.ClassifyNetwork, logger: watermill.NopLogger{}, circuits: circuit.New(circuit.Config{
		FailuresInRow: circuit.FailuresInRow, ProbeMin: time.Hour, ProbeMax: time.Hour, OutageLimit: circuit.OutageLimit,
	}, func() {})}
	t.Cleanup(r.circuits.Stop)
	return newDirect(r, Config{Concurrency: 1})
}

// batchOf returns messages whose ids begin with their keys; "-" is no key.
func batchOf(ids ...string) (batch []*spool.Message) {
	for _, id := range ids {
		m := &spool.Message{Topic: "orders", MessageID: id, Key: id[:1], HasKey: id[:1] != "-", Payload: []byte("payload"), Metadata: map[string]string{}}
		if !m.HasKey {
			m.Key = ""
		}
		batch = append(batch, m)
	}
	return batch
}

var errRefused = errors.New("refused")

func TestDirect_G3_publishes_nothing_of_a_key_after_a_failure(t *testing.T) {
	t.Parallel()
	to := &scripted{do: func(m *message.Message) error {
		m.Payload[0] = 'X' // as a decorator may do
		switch m.UUID {
		case "a2":
			return errRefused
		case "-2":
			panic("oops")
		}
		return nil
	}}
	d := directTo(t, to)
	batch := batchOf("a1", "-1", "a2", "b1", "-2", "a3", "b2", "-3")
	got := d.Publish(t.Context(), batch, spool.Settings{})
	require.Equal(t, []bool{true, true, false, true, false, false, true, true}, got)
	require.Equal(t, []string{"a1", "-1", "b1", "b2", "-3"}, to.published())
	for _, m := range batch {
		require.Equal(t, "payload", string(m.Payload), "what gets a row is what the producer has written")
	}
}

func TestDirect_leaves_messages_to_rows(t *testing.T) {
	t.Parallel()
	to := &scripted{do: func(m *message.Message) error {
		if m.UUID == "away" {
			return &net.OpError{Op: "dial", Err: errRefused}
		}
		return nil
	}}
	d := directTo(t, to)
	none := func(what string, got []bool) {
		t.Helper()
		require.Equal(t, []bool{false}, got, what)
	}
	for _, settings := range []spool.Settings{{PerSecond: 1}, {AtOnce: 1}, {History: time.Hour}} {
		none(fmt.Sprintf("%+v", settings), d.Publish(t.Context(), batchOf("a1"), settings))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	none("the reader ends", d.Publish(ended, batchOf("a1"), spool.Settings{}))
	require.Equal(t, []bool{true}, d.Publish(t.Context(), batchOf("a1"), spool.Settings{PerSecond: -1, Concurrency: 2}))
	none("the broker is away", d.Publish(t.Context(), batchOf("away"), spool.Settings{}))
	none("the circuit is open", d.Publish(t.Context(), batchOf("a2"), spool.Settings{}))
	d.relay.circuits.Reached("orders")
	require.Equal(t, []bool{true}, d.Publish(t.Context(), batchOf("a3"), spool.Settings{}))
	d.limited = true
	none("the configuration has limits", d.Publish(t.Context(), batchOf("a4"), spool.Settings{}))
	require.Equal(t, []string{"a1", "a3"}, to.published())
}

func TestDirect_does_not_wait_for_a_publisher_that_does_not_return(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		returns := make(chan struct{})
		to := &scripted{do: func(m *message.Message) error {
			switch m.UUID {
			case "a1":
				<-returns
			case "c1":
				<-time.After(directStarts + time.Second) // by the clock of the bubble
			}
			return nil
		}}
		d := directTo(t, to)
		began := time.Now()
		require.Equal(t, []bool{true, false}, d.Publish(t.Context(), batchOf("c1", "c2"), spool.Settings{}), "a slow broker gets no more calls")
		require.Equal(t, directStarts+time.Second, time.Since(began))
		began = time.Now()
		require.Equal(t, []bool{false, false, false}, d.Publish(t.Context(), batchOf("a1", "a2", "b1"), spool.Settings{}))
		require.Equal(t, directPatience, time.Since(began))
		require.Equal(t, []bool{false}, d.Publish(t.Context(), batchOf("b1"), spool.Settings{}), "the topic waits for the call")
		close(returns)
		synctest.Wait()
		require.Equal(t, []bool{true}, d.Publish(t.Context(), batchOf("b2"), spool.Settings{}))
		require.Equal(t, []string{"c1", "a1", "b2"}, to.published(), "the later one of the key was not published")
	})
}
