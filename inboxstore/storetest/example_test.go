package storetest_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
)

// The test of a store of your own; here it is one in memory, with which Postbox tests itself.
func ExampleRun() {
	var t *testing.T // that of func TestStore(t *testing.T)

	storetest.Run(t, storetest.Features{Delays: true, RefusesWhenClosed: true}, newHarness)
}

// newHarness makes a store for each case.
func newHarness(*testing.T) storetest.Harness {
	store := newMemoryStore()
	return storetest.Harness{
		Handle: storetest.Handle{
			Store: store,
			Subscriber: func(t *testing.T, retry postbox.RetryProfile) message.Subscriber {
				t.Helper()
				subscriber, err := store.Subscriber(retry)
				if err != nil {
					t.Fatal(err)
				}
				return subscriber
			},
		},
		Pending:     func(_ context.Context, queue string) ([]storetest.Pending, error) { return store.Pending(queue), nil },
		DeadLetters: func(context.Context) ([]storetest.DeadLetter, error) { return store.DeadLetters(), nil },
	}
}
