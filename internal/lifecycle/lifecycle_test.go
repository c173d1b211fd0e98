package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

var errPart = errors.New("cannot go on")

// failing is a part of a router that ends with an error when it is told to.
type failing struct{ now chan struct{} }

func (f failing) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.now:
		return errPart
	}
}

func (failing) Close() error { return nil }

// checked finds out beforehand.
type checked struct{ failing }

func (checked) Check(context.Context) error { return errPart }

// withHandler returns a router that has also a handler of messages.
func withHandler(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	broker := gochannel.NewGoChannel(gochannel.Config{}, nil)
	t.Cleanup(func() { _ = broker.Close() })
	router.AddConsumerHandler("healthy", "orders", broker, func(*message.Message) error { return nil })
	return router
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the router goes on")
		return nil
	}
}

func TestAdd_a_part_that_fails_while_the_router_runs_fails_the_router(t *testing.T) {
	t.Parallel()
	for _, collected := range []bool{false, true} {
		router, part := withHandler(t), failing{now: make(chan struct{})}
		require.NoError(t, lifecycle.Add(router, "part", "topic", part, watermill.NopLogger{}))
		ctx, failures := t.Context(), (*lifecycle.Failures)(nil)
		if collected {
			ctx, failures = lifecycle.Collect(ctx)
		}
		done := make(chan error, 1)
		go func() { done <- router.Run(ctx) }()
		<-router.Running()
		close(part.now)
		require.NoError(t, ended(t, done), "Watermill's router knows of no such error")
		if collected {
			require.ErrorIs(t, failures.End(), errPart)
		}
	}
}

func TestAdd_a_part_that_cannot_run_fails_the_start_of_the_router(t *testing.T) {
	t.Parallel()
	router := withHandler(t)
	require.NoError(t, lifecycle.Add(router, "part", "topic", checked{}, watermill.NopLogger{}))
	done := make(chan error, 1)
	go func() { done <- router.Run(t.Context()) }()
	require.ErrorIs(t, ended(t, done), errPart)
}

func TestAdd_a_part_that_cannot_run_is_an_error_of_RunHandlers(t *testing.T) {
	t.Parallel()
	router := withHandler(t)
	done := make(chan error, 1)
	go func() { done <- router.Run(t.Context()) }()
	<-router.Running()
	require.NoError(t, lifecycle.Add(router, "part", "topic", checked{}, watermill.NopLogger{}))
	require.ErrorIs(t, router.RunHandlers(t.Context()), errPart)
}

func TestCheck_a_database_that_does_not_answer_fails_no_router(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, lifecycle.Check(t.Context(), silent{}))
		require.Equal(t, 5*time.Second, time.Since(began))
	})
}

// silent waits for an answer, and says afterwards that it does not know.
type silent struct{}

func (silent) Check(ctx context.Context) error { <-ctx.Done(); return nil }
