package storetest_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
	"github.com/postbox-go/watermill-postbox/internal/memstore"
)

// The test of a store of your own; here it is one in memory, with which Postbox tests itself.
func ExampleRun() {
	var t *testing.T // that of func TestStore(t *testing.T)

	features := storetest.Features{Delays: true, RefusesWhenClosed: true}
	storetest.Run(t, features, func(*testing.T) storetest.Harness {
		store := memstore.New(memstore.Config{CloseTimeout: storetest.CloseTimeout})
		return storetest.Harness{
			Handle: storetest.Handle{
				Store: store,
				Subscriber: func(t *testing.T, retry postbox.RetryProfile) message.Subscriber {
					subscriber, err := store.Subscriber(retry)
					if err != nil {
						t.Fatal(err)
					}
					return subscriber
				},
			},
			Pending: func(_ context.Context, queue string) ([]storetest.Pending, error) {
				var pending []storetest.Pending
				for _, p := range store.Pending(queue) {
					pending = append(pending, storetest.Pending{MessageID: p.Message.UUID, Attempts: p.Attempts})
				}
				return pending, nil
			},
			DeadLetters: func(context.Context) ([]storetest.DeadLetter, error) {
				var letters []storetest.DeadLetter
				for _, l := range store.DeadLetters() {
					letter := storetest.DeadLetter{
						Queue: l.Queue, Consumer: l.Key.Consumer, Topic: l.Key.Topic, MessageID: l.Message.UUID,
						Payload: l.Message.Payload, Metadata: l.Message.Metadata, Attempts: l.Attempts, Error: l.Err.Error(),
					}
					for _, failure := range l.Failures {
						letter.Failures = append(letter.Failures, failure.Error())
					}
					letters = append(letters, letter)
				}
				return letters, nil
			},
		}
	})
}
