package queue

import (
	"context"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// measuredHandler reports how long a handler takes for its messages.
type measuredHandler struct {
	drain.Handler

	meter *meter.Spool
}

// measured returns the handler itself without a meter.
func measured(handler drain.Handler, meter *meter.Spool) drain.Handler {
	if meter == nil {
		return handler
	}
	return measuredHandler{handler, meter}
}

// Handle calls the handler. A batch of which no message was handled, such as during an outage, was
// no call.
func (h measuredHandler) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	started := h.meter.Now()
	outcomes := h.Handler.Handle(ctx, batch)
	took, called, succeeded := h.meter.Now()-started, false, true
	for i := range outcomes {
		if outcomes[i].Verdict != spool.Postpone {
			called, succeeded = true, succeeded && outcomes[i].Through()
		}
	}
	if called {
		h.meter.Called(batch[0].Topic, len(batch), took, succeeded)
	}
	return outcomes
}
