package middleware

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// shortPause is the longest pause after a deadline has passed: the context cannot end it then,
// since it no longer shows whether the router closes. It is also the longest behind a subscriber of
// watermill-sql, whose transaction stays open meanwhile: on PostgreSQL other topics wait for its
// end, on MySQL producers.
const shortPause = 5 * time.Second

// watermillSQL is how Watermill's router names the subscribers of all versions of watermill-sql.
const watermillSQL = "sql.Subscriber"

// brake pauses before each nack of an inbox or a deferral, so that a broker that delivers a nacked
// message at once does not do so in a tight loop.
type brake struct {
	profile   postbox.RetryProfile
	uncounted atomic.Int32 // nacks in a row for which no attempt was counted
}

// ended is called at the end of each delivery, and pauses if it ends with a nack, for which err is
// not nil. The pause grows with the attempts of the message. If no attempt was counted (0), because
// the database is away or refuses the failure record, it grows with such nacks in a row, of any
// message, and [postbox.RetryAfter] does not shorten it.
func (b *brake) ended(ctx context.Context, attempts int, err error) {
	switch {
	case err != nil && attempts == 0:
		pause(ctx, retries.Delay(b.profile, int(b.uncounted.Add(1))))
		return
	case b.uncounted.Load() != 0:
		b.uncounted.Store(0)
	}
	if err == nil {
		return
	}
	var later *verdict.RetryAfterError
	if errors.As(err, &later) && later.After > 0 {
		pause(ctx, later.After)
	} else {
		pause(ctx, retries.Delay(b.profile, attempts))
	}
}

// pause waits until ctx ends, unless the deadline of ctx has passed. It does not wait in a
// transaction that the inbox did not begin.
func pause(ctx context.Context, delay time.Duration) {
	if _, joined := postbox.TxFromContext(ctx); joined {
		return
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx, delay = context.WithoutCancel(ctx), min(delay, shortPause)
	} else if message.SubscriberNameFromCtx(ctx) == watermillSQL {
		delay = min(delay, shortPause)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
