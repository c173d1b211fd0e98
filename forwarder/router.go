package forwarder

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

// addTo lets the router run the forwarder.
func (f *Forwarder) addTo(router *message.Router) error {
	if err := lifecycle.Add(router, f.config.Name, f.config.Outbox, routed{f}, f.logger); err != nil {
		return fmt.Errorf("%w: set Config.Name", err)
	}
	return nil
}

// routed is a forwarder that only its router runs.
type routed struct{ f *Forwarder }

// Check returns the error with which Run would end at once.
func (r routed) Check(ctx context.Context) error {
	if err := r.f.drainer.Check(ctx); err != nil {
		return fmt.Errorf("forwarder %q: %w", r.f.config.Name, err)
	}
	return nil
}

// Run forwards until ctx ends.
func (r routed) Run(ctx context.Context) error { return r.f.run(ctx) }

// Close stops the forwarder.
func (r routed) Close() error { return r.f.Close() }
