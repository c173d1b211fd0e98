package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// candidate is a publisher that is tried.
type candidate struct {
	name string
	open func(ctx context.Context) (server, error)
}

func candidates() []candidate {
	return []candidate{
		{"kafka", openKafka},
		{"amqp-v2", openAMQPv2},
		{"amqp-v3", openAMQPv3},
		{"nats-jetstream", openNATS},
		{"redis-streams", openRedis},
		{"sql", openSQL},
	}
}

// server is the broker behind a publisher. It runs when it is opened, and keeps its messages while
// it is stopped.
type server interface {
	stop(ctx context.Context) error
	start(ctx context.Context) error
	close() error

	// publisher and subscriber return Watermill's own, with settings as their documentation gives
	// them.
	publisher(logger watermill.LoggerAdapter) (message.Publisher, error)
	// subscriber reads a topic from its beginning.
	subscriber(logger watermill.LoggerAdapter) (message.Subscriber, error)
}

// service is a server that scripts/services runs.
type service struct{ name string }

// openService returns the service, and its address from the variable.
func openService(name, variable string) (service, string, error) {
	address := os.Getenv(variable)
	if address == "" || os.Getenv("POSTBOX_SERVICES_CONTROL") == "" {
		return service{}, "", errors.New("nothing here can stop and start it: run through scripts/services, as make publishers does")
	}
	return service{name}, address, nil
}

func (s service) stop(ctx context.Context) error { return control(ctx, "stop", s.name) }

func (s service) start(ctx context.Context) error { return control(ctx, "start", s.name) }

// close has nothing to do: whoever started the service ends it.
func (service) close() error { return nil }

// script is where it is, seen from this module.
const script = "../../scripts/services"

func control(ctx context.Context, words ...string) error {
	output, err := exec.CommandContext(ctx, script, words...).CombinedOutput() //nolint:gosec // our own script
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", script, words, err, output)
	}
	return nil
}
