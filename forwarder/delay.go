package forwarder

import (
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// delayOf returns metadata with the delay of a message: its own delay, or that of its context, as
// Watermill's delay.NewPublisher would set it.
func delayOf(msg *message.Message) message.Metadata {
	if msg.Metadata.Get(delay.DelayedForKey) != "" {
		return msg.Metadata
	}
	probe := probes.Get().(*delayProbe) //nolint:forcetypeassert // New makes nothing else
	defer probes.Put(probe)
	probe.message.SetContext(msg.Context())
	defer probe.message.SetContext(nil) //nolint:staticcheck // it must not keep the context alive
	if err := probe.delayed.Publish("", probe.messages...); err != nil || len(probe.message.Metadata) == 0 {
		return msg.Metadata // it has no errors
	}
	found := maps.Clone(probe.message.Metadata)
	clear(probe.message.Metadata)
	return found
}

// delayProbe reads a delay that delay.WithContext has put into a context. Only Watermill's own
// publisher can read it, and writes it into the metadata of a message.
type delayProbe struct {
	message  *message.Message
	messages []*message.Message
	delayed  message.Publisher
}

// probes are reused, so that not each message allocates one.
var probes = sync.Pool{New: func() any {
	probe := &delayProbe{message: message.NewMessage("", nil)}
	probe.messages = []*message.Message{probe.message}
	probe.delayed, _ = delay.NewPublisher(discard{}, delay.PublisherConfig{AllowNoDelay: true}) // it has no errors
	return probe
}}

// discard publishes nothing.
type discard struct{}

// Publish does nothing.
func (discard) Publish(string, ...*message.Message) error { return nil }

// Close does nothing.
func (discard) Close() error { return nil }
