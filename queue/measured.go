package queue

import (
	"context"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// measuredHandler reports how long a handler takes for its messages.
type measuredHandler struct {
	drain.Handler

	meter *meter.Spool
}

// Handle calls the handler. A batch of which no message was handled, such as during an outage, was no call.
func (h measuredHandler) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	started := time.Now()
	outcomes := h.Handler.Handle(ctx, batch)
	postponed := func(o spool.Outcome) bool { return o.Verdict == spool.Postpone }
	if h.meter == nil || !slices.ContainsFunc(outcomes, func(o spool.Outcome) bool { return !postponed(o) }) {
		return outcomes
	}
	failed := slices.ContainsFunc(outcomes, func(o spool.Outcome) bool { return !o.Through() && !postponed(o) })
	h.meter.Called(batch[0].Topic, len(batch), time.Since(started), !failed)
	return outcomes
}
