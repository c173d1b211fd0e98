package forwarder

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// addTo makes the forwarder a handler of the router, which gets no messages and lives as long as the forwarder:
// so the router starts it, waits for it when it closes, and stops when it fails.
func (f *Forwarder) addTo(router *message.Router) error {
	if _, taken := router.Handlers()[f.config.Name]; taken {
		return fmt.Errorf("the router has a handler %q already: set Config.Name", f.config.Name)
	}
	router.AddConsumerHandler(f.config.Name, f.config.Outbox, lifecycle{f}, func(*message.Message) error { return nil })
	return nil
}

// lifecycle is the forwarder as a subscriber whose subscription is its run.
type lifecycle struct{ f *Forwarder }

// Subscribe runs the forwarder until ctx ends. The channel is closed after the clean stop.
func (l lifecycle) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message)
	go func() {
		defer close(messages)
		if err := l.f.run(ctx); err != nil {
			l.f.logger.Error("Postbox forwarder cannot run", err, nil)
		}
	}()
	return messages, nil
}

// Close stops the forwarder.
func (l lifecycle) Close() error { return l.f.Close() }
