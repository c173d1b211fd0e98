package middleware_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/middleware"
)

func TestSlowNack_waits_for_what_is_left_of_the_pause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, handler time.Duration, err error) time.Duration {
			began := time.Now()
			msg := message.NewMessage("1", nil)
			msg.SetContext(ctx)
			_, got := middleware.SlowNack(time.Second)(func(*message.Message) ([]*message.Message, error) {
				<-time.After(handler)
				return nil, err
			})(msg)
			require.Equal(t, err, got)
			return time.Since(began)
		}
		require.Equal(t, time.Second, took(t.Context(), 0, errHandler))
		require.Equal(t, time.Second, took(t.Context(), 400*time.Millisecond, errHandler))
		require.Equal(t, 3*time.Second, took(t.Context(), 3*time.Second, errHandler))
		require.Zero(t, took(t.Context(), 0, nil), "what is acked does not wait")
		ending, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Equal(t, 100*time.Millisecond, took(ending, 0, errHandler), "the router closes")
	})
}

// Of 3 seconds with an open breaker, the broker hears a few nacks and not hundreds of thousands.
func TestSlowNack_keeps_an_open_CircuitBreaker_from_a_hot_loop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := func(message.HandlerFunc) message.HandlerFunc { // a breaker that is
			return func(*message.Message) ([]*message.Message, error) { return nil, errHandler }
		}
		channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
		var nacks atomic.Int64
		count := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := h(msg)
				nacks.Add(1)
				return produced, err
			}
		}
		router := startRouter(t, func(router *message.Router) {
			router.AddMiddleware(count, middleware.SlowNack(time.Second), open)
			router.AddConsumerHandler("billing", "orders", channel, func(*message.Message) error { return nil })
		})
		require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
		<-time.After(3500 * time.Millisecond)
		require.Equal(t, int64(3), nacks.Load())
		require.NoError(t, router.Close())
		require.NoError(t, channel.Close())
	})
}
