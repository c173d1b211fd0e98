package forwarder

import (
	"context"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// direct publishes a message that has no row, and reports whether the broker has acknowledged it. Otherwise the message
// gets a row, whose attempts begin at 0: this call does not count. A known outage opens the circuit. An error of an
// unknown reason does not: the row shows soon whose fault it is.
func (r *relay) direct(ctx context.Context, m *spool.Message) (acknowledged bool) {
	call, allowed := r.circuits.Begin(m.Topic)
	defer r.circuits.End(m.Topic, call)
	if !allowed {
		return false
	}
	given := *m // a decorator may change what it gets, and the row must have what the producer has written
	given.Payload, given.Metadata = slices.Clone(m.Payload), maps.Clone(m.Metadata)
	batch := []*spool.Message{&given}
	err := r.publish(ctx, m.Topic, batch, spool.Protect)
	switch {
	case err == nil:
		r.succeeded(m.Topic, call, batch)
		return true
	case ctx.Err() == nil && r.classify(err) == postbox.Outage:
		r.outage(batch, call, err)
	default:
		r.logger.Debug("Postbox stores a message of the log as a row, since it could not be published: "+err.Error(),
			watermill.LogFields{"topic": m.Topic, "message_uuid": m.MessageID})
	}
	return false
}
