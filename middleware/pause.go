package middleware

import (
	"context"
	"errors"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
)

// pause keeps a broker that delivers a nacked message at once from doing so in a hot loop. It ends with ctx. The
// transaction of somebody else is not kept waiting.
func pause(ctx context.Context, profile postbox.RetryProfile, attempts int, cause error) {
	if _, joined := postbox.TxFromContext(ctx); joined {
		return
	}
	delay := profile.Delay(attempts)
	var later *postbox.RetryAfterError
	if errors.As(cause, &later) {
		delay = later.After
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
