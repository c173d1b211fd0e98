package lifecycle_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

func TestOnce_runs_once_and_Close_waits_for_the_end(t *testing.T) {
	t.Parallel()
	var once lifecycle.Once
	ctx, end, err := once.Begin(t.Context(), `batch "a"`)
	require.NoError(t, err)
	_, _, err = once.Begin(t.Context(), `batch "a"`)
	require.EqualError(t, err, `batch "a" is already running`)

	closed := make(chan struct{})
	go func() { defer close(closed); once.Close() }()
	<-ctx.Done()
	select {
	case <-closed:
		t.Fatal("Close did not wait for the run")
	default:
	}
	end()
	<-closed
	once.Close()
	_, _, err = once.Begin(t.Context(), `batch "a"`)
	require.ErrorIs(t, err, postbox.ErrClosed)
}

func TestOnce_ends_with_its_context_and_does_not_begin_after_Close(t *testing.T) {
	t.Parallel()
	var once, closed lifecycle.Once
	ctx, cancel := context.WithCancel(t.Context())
	running, end, err := once.Begin(ctx, "forwarder")
	require.NoError(t, err)
	defer end()
	cancel()
	<-running.Done()

	closed.Close()
	_, _, err = closed.Begin(t.Context(), "forwarder")
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.ErrorContains(t, err, "forwarder")
}
