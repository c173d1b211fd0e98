package middleware_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// The recipe of docs/retries.md. Without the pause the channel would deliver the message again at
// once, for ever.
func TestInbox_Retry_of_Watermill_slows_down_the_nacks_of_an_open_CircuitBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inbox, err := middleware.NewInbox(newAnyStore(), middleware.InboxConfig{}, nil)
		require.NoError(t, err)
		began, tries := time.Now(), atomic.Int64{}
		breaker := func(h message.HandlerFunc) message.HandlerFunc { // open for a minute
			return func(msg *message.Message) ([]*message.Message, error) {
				tries.Add(1)
				if time.Since(began) < time.Minute {
					return nil, errHandler
				}
				return h(msg)
			}
		}
		pause := wmmiddleware.Retry{MaxRetries: 10, InitialInterval: time.Second, MaxInterval: time.Minute, Multiplier: 2, ResetContextOnRetry: true}
		channel := gochannel.NewGoChannel(gochannel.Config{}, nil)
		handled := make(chan struct{})
		router := startRouter(t, func(router *message.Router) {
			router.AddMiddleware(pause.Middleware, breaker, inbox.Middleware)
			router.AddConsumerHandler("billing", "orders", channel, func(*message.Message) error { close(handled); return nil })
		})
		require.NoError(t, channel.Publish("orders", message.NewMessage("1", nil)))
		<-handled
		require.Equal(t, int64(7), tries.Load(), "after 0, 1, 3, 7, 15, 31 and 63 seconds")
		require.NoError(t, router.Close())
		require.NoError(t, channel.Close())
	})
}

// The other recipe of docs/retries.md: the queue waits while the breaker is open.
func TestProcess_G7_an_open_CircuitBreaker_that_Classify_knows_counts_no_attempt(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newGuardBench(t, database)
	errOpen := errors.New("circuit breaker is open")
	for _, id := range []string{"1", "2", "3"} {
		b.put("orders", message.NewMessage(id, nil))
	}
	var tries atomic.Int32
	breaker := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if tries.Add(1) <= 10 {
				return nil, errOpen
			}
			return h(msg)
		}
	}
	startRouter(t, func(router *message.Router) {
		router.AddConsumerHandler("billing", "orders", b.subscriberWith(func(c *queue.Config) {
			c.Transactional, c.ProbeMin, c.ProbeMax = true, time.Millisecond, 5*time.Millisecond
			c.Classify = func(err error) postbox.ErrorClass {
				if errors.Is(err, errOpen) {
					return postbox.Outage
				}
				return postbox.Unclassified
			}
		}), func(msg *message.Message) error { return b.write(msg.Context(), msg.UUID) }).
			AddMiddleware(middleware.Process, breaker)
	})
	b.eventually(func() bool { return b.effects("1")+b.effects("2")+b.effects("3") == 3 }, "the queue goes on")
	require.Zero(t, b.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt > 0"))
}
