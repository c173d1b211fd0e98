package middleware_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	wmmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/inboxstore/memstore"
	"github.com/postbox-go/watermill-postbox/middleware"
)

// The recipe of docs/inbox.md. Without the pause the channel would deliver the message again at once, for ever.
func TestInbox_behind_an_open_CircuitBreaker_the_Retry_of_Watermill_slows_down_the_nacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, nil)
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
		require.NoError(t, store.Close())
	})
}
