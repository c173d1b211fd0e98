// Package lifecycle lets a Watermill router start and stop what is no handler of messages, a forwarder or a batch, and a
// publisher end with its calls.
package lifecycle

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Runner is what a router can run.
type Runner interface {
	// Run works until ctx ends or Close is called, and returns after a clean stop.
	Run(ctx context.Context) error
	// Close stops Run and waits for its end.
	Close() error
}

// Add makes the runner a handler of the router, which gets no messages and lives as long as the runner: so the router
// starts it, waits for it when it closes, and stops when it fails and nothing else runs.
func Add(router *message.Router, name, topic string, runner Runner, logger watermill.LoggerAdapter) error {
	if err := Free(router, name); err != nil {
		return err
	}
	router.AddConsumerHandler(name, topic, subscription{name, runner, logger}, func(*message.Message) error { return nil })
	return nil
}

// Free returns an error where the router, which would panic, has a handler of this name.
func Free(router *message.Router, name string) error {
	if _, taken := router.Handlers()[name]; taken {
		return fmt.Errorf("the router has a handler %q already: choose another name", name)
	}
	return nil
}

// subscription is a subscriber whose subscription is the run.
type subscription struct {
	name   string
	runner Runner
	logger watermill.LoggerAdapter
}

// Subscribe runs until ctx ends. The channel is closed after the clean stop.
func (s subscription) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message)
	go func() {
		defer close(messages)
		if err := s.runner.Run(ctx); err != nil {
			s.logger.Error("Postbox cannot run a part of the router", err, watermill.LogFields{"handler": s.name})
		}
	}()
	return messages, nil
}

// Close stops the runner.
func (s subscription) Close() error { return s.runner.Close() }
