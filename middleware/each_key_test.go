package middleware_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// keyedMessage is a message of a key, or without one.
func keyedMessage(key string) *message.Message {
	msg := message.NewMessage("1", nil)
	if key != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	}
	return msg
}

func TestLimitEachKey_starts_the_messages_of_a_key_at_its_rate_and_holds_up_no_other(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		starts, begun := map[string][]time.Duration{}, time.Now()
		handler := middleware.LimitEachKey(4)(func(msg *message.Message) ([]*message.Message, error) {
			mu.Lock()
			defer mu.Unlock()
			key := msg.Metadata.Get(postbox.MetadataOrderingKey)
			starts[key] = append(starts[key], time.Since(begun))
			return nil, nil
		})
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", ""} {
			for range 5 {
				all.Go(func() {
					_, err := handler(keyedMessage(key))
					require.NoError(t, err)
				})
			}
		}
		all.Wait()
		rate := []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond, time.Second}
		require.Equal(t, map[string][]time.Duration{"a": rate, "b": rate, "": make([]time.Duration, 5)}, starts)
		for n := range 5000 { // it forgets some
			_, err := handler(keyedMessage(fmt.Sprint(n)))
			require.NoError(t, err)
		}
		require.Equal(t, time.Second, time.Since(begun), "each is the first of its key")
	})
}

func TestLimitEachKey_does_not_wait_when_the_context_ends(t *testing.T) {
	t.Parallel()
	handler := middleware.LimitEachKey(spool.MinPerSecond)(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	_, err := handler(keyedMessage("a"))
	require.NoError(t, err)
	msg := keyedMessage("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	msg.SetContext(ctx)
	_, err = handler(msg)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLimitEachKey_panics_without_a_rate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1), spool.MinPerSecond / 2} {
		require.Panics(t, func() { middleware.LimitEachKey(rate) }, "%g", rate)
	}
}
