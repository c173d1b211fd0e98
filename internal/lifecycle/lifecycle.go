// Package lifecycle lets a Watermill router start and stop a component that is not a message
// handler, such as a forwarder or a batch. It also lets a publisher close after its running calls.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Runner is a component that a router can run.
type Runner interface {
	// Run works until ctx ends or Close is called, and returns after a clean stop.
	Run(ctx context.Context) error
	// Close stops Run and waits for its end.
	Close() error
}

// Checker is a component that can check beforehand whether it can run.
type Checker interface {
	// Check returns the error that would end the component immediately. If the component would wait
	// for an unavailable service, that is not an error.
	Check(ctx context.Context) error
}

// checkTimeout bounds a check, because the router starts nothing else meanwhile.
const checkTimeout = 5 * time.Second

// Check is for Subscribe, whose error Run of the router returns. It returns the error of the
// checker. If the check takes too long, because the database does not answer, it returns nil: the
// component waits for its database when it runs.
func Check(ctx context.Context, checker Checker) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return checker.Check(ctx)
}

// Add makes the runner a handler of the router. The handler gets no messages and lives as long as
// the runner, so the router starts the runner, and waits for it when it closes. If the runner
// fails, the router fails. Run of the router returns the error of a [Checker] that cannot start. A
// later error ends the run, see [Failures]. Without [Collect] it is logged, and the router closes.
func Add(router *message.Router, name, topic string, runner Runner, logger watermill.LoggerAdapter) error {
	if err := Free(router, name); err != nil {
		return err
	}
	router.AddConsumerHandler(name, topic, subscription{name, runner, router, logger}, func(*message.Message) error { return nil })
	return nil
}

// Free returns an error if the router already has a handler of this name; the router itself would
// panic.
func Free(router *message.Router, name string) error {
	if _, taken := router.Handlers()[name]; taken {
		return fmt.Errorf("the router has a handler %q already: choose another name", name)
	}
	return nil
}

// subscription is a subscriber that runs the runner while it is subscribed.
type subscription struct {
	name   string
	runner Runner
	router *message.Router
	logger watermill.LoggerAdapter
}

// Subscribe runs until ctx ends. The channel is closed after the clean stop.
func (s subscription) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	if checker, checks := s.runner.(Checker); checks {
		if err := Check(ctx, checker); err != nil {
			return nil, err
		}
	}
	messages := make(chan *message.Message)
	go func() {
		defer close(messages)
		err := s.runner.Run(ctx)
		if err == nil {
			return
		}
		s.logger.Error("Postbox cannot run a part of the router", err, watermill.LogFields{"handler": s.name})
		if !errors.Is(err, postbox.ErrClosed) && !Fail(ctx, err) {
			go func() { _ = s.router.Close() }() // Close waits for the end of this handler, and logs a time-out
		}
	}()
	return messages, nil
}

// Close stops the runner.
func (s subscription) Close() error { return s.runner.Close() }
