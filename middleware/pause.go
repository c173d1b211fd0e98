package middleware

import (
	"context"
	"errors"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// latePause is the longest pause after a deadline has passed. The context cannot end the pause then, since it no longer shows whether the router closes.
const latePause = 5 * time.Second

// pause waits before a nack, so that a broker that delivers a nacked message at once does not do so in a tight loop. It ends with ctx, unless the deadline
// of ctx has passed. It does not wait in a transaction that the inbox did not begin.
func pause(ctx context.Context, profile postbox.RetryProfile, attempts int, cause error) {
	if _, joined := postbox.TxFromContext(ctx); joined {
		return
	}
	delay := profile.Delay(attempts)
	var later *postbox.RetryAfterError
	if errors.As(cause, &later) {
		delay = later.After
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx, delay = context.WithoutCancel(ctx), min(delay, latePause)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
