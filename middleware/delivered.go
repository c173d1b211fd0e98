package middleware

import (
	"bytes"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// delivered is a message as it came to the inbox. A handler may change its message, for example
// decrypt the payload in place, and then fail: whatever happens to the message after that begins
// with what was delivered.
type delivered struct {
	uuid     string
	carried  string // the uuid, or the name that WithoutID has given to a message without one
	payload  message.Payload
	metadata message.Metadata
}

func deliveredAs(msg *message.Message, carried string) delivered {
	return delivered{uuid: msg.UUID, carried: carried, payload: msg.Payload, metadata: msg.Metadata}
}

// stored returns the message as it is kept and published again: as it was delivered, with the id by
// which all consumers can know it.
func (d delivered) stored() *message.Message {
	return &message.Message{UUID: d.carried, Payload: d.payload, Metadata: d.metadata}
}

// give gives the message to the handler, with bytes and metadata of its own: the delivered ones
// belong to the subscriber, which may deliver them again. What only the service's own code may say
// is left out.
func (d delivered) give(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = d.uuid, bytes.Clone(d.payload), maps.Clone(d.metadata)
	spool.ForgetOrigin(msg.Metadata)
	spool.Disarm(msg.Metadata)
}

// restore undoes what the handler has done to the message.
func (d delivered) restore(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = d.uuid, d.payload, d.metadata
}
