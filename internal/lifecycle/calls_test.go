package lifecycle_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/lifecycle"
)

func TestCalls_G12_close_waits_for_calls_in_flight_and_refuses_new_ones(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls lifecycle.Calls
		broken, shut := errors.New("broken"), 0
		shutting := func() error { shut++; return broken }
		ended := make(chan error, 1)
		require.NoError(t, calls.Begin())
		go func() { ended <- calls.Close(shutting) }()
		synctest.Wait()
		require.Empty(t, ended, "a call is in flight")
		require.Zero(t, shut)
		require.ErrorIs(t, calls.Begin(), postbox.ErrClosed)
		calls.End()
		require.Equal(t, broken, <-ended)
		require.Equal(t, broken, calls.Close(shutting), "a second call tells what the first met")
		require.Equal(t, 1, shut)
	})
}
