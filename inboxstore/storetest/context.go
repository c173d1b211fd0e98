package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// An error of fn is returned as a HandlerError with all errors that it wraps, since the inbox
// counts it and checks for Permanent and RetryAfter. An error of the store is no HandlerError: it
// must not use up attempts.
func testHandlerError(t *testing.T, h Harness) {
	_, err := h.Store.Once(patient(t), keyOf("1"), func(context.Context) error { return postbox.Permanent(errFn) })
	var failure *inboxstore.HandlerError
	require.ErrorAs(t, err, &failure)
	require.ErrorIs(t, failure.Err, errFn)
	require.ErrorIs(t, err, postbox.ErrPermanent)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = h.Store.Once(ended, keyOf("2"), succeed)
	require.Error(t, err)
	require.NotErrorAs(t, err, &failure, "the context ended before fn began")
}

// If the context has ended before the call, fn does not run and nothing is kept.
func testEndedContext(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fresh, err := h.Store.Once(ctx, keyOf("once"), func(context.Context) error {
		t.Error("fn runs")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, fresh)
	fresh, err = h.Store.Defer(ctx, queue, keyOf("defer"), newMessage("defer", ""))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, fresh)

	require.Empty(t, h.pending(t, queue))
	requireFresh(t, h.Store, keyOf("once"), "nothing was claimed")
	requireFresh(t, h.Store, keyOf("defer"), "nothing was claimed")
}

// The inbox needs the router's names in the context, and the handler needs the values of
// middlewares.
func testContextValues(t *testing.T, h Harness) {
	type mark struct{}
	ctx := context.WithValue(patient(t), mark{}, "here")
	_, err := h.Store.Once(ctx, keyOf("1"), func(ctx context.Context) error {
		require.Equal(t, "here", ctx.Value(mark{}))
		return nil
	})
	require.NoError(t, err)
}

// G12: Watermill cancels the contexts of all deliveries at once when its router closes. A running
// fn may finish, and its claim is then committed.
func testFnOutlivesDelivery(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fresh, err := h.Store.Once(ctx, keyOf("1"), func(live context.Context) error {
		cancel()
		requireQuiet(t, live.Done(), "fn's context must outlive that of the delivery")
		return live.Err()
	})
	require.NoError(t, err)
	require.True(t, fresh)
	require.True(t, claimed(t, h.Store, keyOf("1")))
}

// G12: an fn that does not end is cancelled after the close timeout, and no earlier. Its later work
// has no effect, whether it returns an error or not.
func testFnIsCancelledInTheEnd(t *testing.T, h Harness) {
	var cases sync.WaitGroup
	for id, end := range map[string]func(context.Context) error{"error": context.Context.Err, "none": succeed} {
		cases.Go(func() {
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			defer cancel()
			fresh, err := h.Store.Once(ctx, keyOf(id), func(live context.Context) error {
				cancelled := time.Now()
				cancel()
				select {
				case <-live.Done():
				case <-time.After(patience):
					t.Errorf("%s: the context of fn does not end", id)
				}
				if lived := time.Since(cancelled); lived < CloseTimeout*9/10 {
					t.Errorf("%s: the context of fn ended after %s, before the close timeout", id, lived)
				}
				return end(live)
			})
			if err == nil || fresh {
				t.Errorf("%s: fresh %t and error %v of a handler that did not end in time", id, fresh, err)
			}
		})
	}
	cases.Wait()
	for _, id := range []string{"error", "none"} {
		require.False(t, claimed(t, h.Store, keyOf(id)), id)
	}
}

// Close is idempotent, also with concurrent calls.
func testCloseTwice(t *testing.T, h Harness) {
	requireFresh(t, h.Store, keyOf("1"), "it is not claimed")
	ends := make([]chan error, 3)
	for i := range ends {
		ends[i] = make(chan error, 1)
		go func() { ends[i] <- h.Store.Close() }()
	}
	for _, end := range ends {
		require.NoError(t, receive(t, end, "Close"))
	}
	requireClosed(t, h.Store)
}

// After Close, Defer returns postbox.ErrClosed and stores nothing: the message is not acked, and is
// delivered again.
func testClosedQueues(t *testing.T, h Harness) {
	deferred(t, h.Store, "1", "")
	requireClosed(t, h.Store)
	for _, queue := range []string{queue, "other"} {
		fresh, err := h.Store.Defer(patient(t), queue, keyOf("2"), newMessage("2", ""))
		require.ErrorIs(t, err, postbox.ErrClosed)
		require.False(t, fresh)
	}
	require.Equal(t, []string{"1"}, h.pending(t, queue))
	require.Empty(t, h.pending(t, "other"))
}

// After Close, the methods of the inbox return postbox.ErrClosed and do nothing. A store may also
// continue to work, so that the result of a running handler can be recorded.
func testClosedInbox(t *testing.T, h Harness) {
	requireClosed(t, h.Store)
	fresh, err := h.Store.Once(patient(t), keyOf("1"), func(context.Context) error {
		t.Error("fn runs")
		return nil
	})
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.False(t, fresh)
	_, err = h.Store.RecordFailure(patient(t), keyOf("1"), errFn)
	require.ErrorIs(t, err, postbox.ErrClosed)
	require.ErrorIs(t, h.Store.Bury(patient(t), keyOf("1"), newMessage("1", ""), 1, errFn), postbox.ErrClosed)
	require.Empty(t, h.letters(t))
}
