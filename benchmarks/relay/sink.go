package relay

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// sink is a publisher that takes a while for each call, or none, or hands on to another, and tells
// when it has got all messages.
type sink struct {
	want    int64
	inner   message.Publisher // nil is nobody
	takes   time.Duration
	got     atomic.Int64
	reached chan struct{}
}

func newSink(want int, takes time.Duration) *sink {
	return &sink{want: int64(want), takes: takes, reached: make(chan struct{})}
}

// Publish takes its time and counts.
func (s *sink) Publish(topic string, messages ...*message.Message) error {
	if s.inner != nil {
		if err := s.inner.Publish(topic, messages...); err != nil {
			return err
		}
	}
	if s.takes > 0 {
		<-time.After(s.takes)
	}
	n := int64(len(messages))
	if got := s.got.Add(n); got >= s.want && got-n < s.want { // more may come than it wants
		close(s.reached)
	}
	return nil
}

// Close does nothing.
func (s *sink) Close() error { return nil }

// stuckTimeout is longer than any run takes.
const stuckTimeout = 5 * time.Minute

// wait returns when all have come.
func (s *sink) wait(ctx context.Context) error {
	select {
	case <-s.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stuckTimeout):
		return fmt.Errorf("%d of %d messages came, then none for long", s.got.Load(), s.want)
	}
}
