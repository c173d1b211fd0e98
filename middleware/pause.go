package middleware

import (
	"context"
	"errors"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// latePause is the longest pause after a deadline has passed. The context is of no use then: it does not tell whether the router closes.
const latePause = 5 * time.Second

// pause keeps a broker that delivers a nacked message at once from doing so in a hot loop. It ends with ctx, unless that
// had a deadline, which has passed. A transaction that the inbox did not begin is not kept waiting.
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
