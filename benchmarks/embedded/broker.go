package embedded

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// broker hands messages to consumers in the same process.
type broker struct{ messages chan *message.Message }

func newBroker() *broker { return &broker{messages: make(chan *message.Message)} }

// Publish waits until the messages are taken.
func (b *broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.messages <- msg
	}
	return nil
}

// Close does nothing.
func (b *broker) Close() error { return nil }

// consume starts consumers. Each handles messages until ctx ends or its handler returns an error.
// The function that it returns waits for all consumers, and returns the first error.
func (b *broker) consume(ctx context.Context, consumers int, handle func(msg *message.Message) error) (wait func() error) {
	var running sync.WaitGroup
	failed := make(chan error, consumers)
	for range consumers {
		running.Go(func() {
			for {
				select {
				case msg := <-b.messages:
					if err := handle(msg); err != nil {
						failed <- err
						return
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() error {
		running.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
}
