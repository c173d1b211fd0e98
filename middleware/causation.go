package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// defaultMaxHops is the default of MaxHops in [CausationConfig].
const defaultMaxHops = 32

// eventName is the metadata key under which the marshalers of Watermill's CQRS component name a
// type.
const eventName = "name"

// CausationConfig says how a module appears in causation paths, and how long paths may get.
type CausationConfig struct {
	// Module is the name of the module that handles the message. All handlers of a module use the
	// same name. Required.
	Module string
	// EventType returns the type of a message. Defaults to its metadata "name", which Watermill's
	// CQRS marshalers set. Without that metadata it is the topic that the message came from; for a
	// deferred message that is not the topic of the handler.
	EventType func(msg *message.Message) string
	// MaxHops is the number of hops that a path may have: a message whose path has that many is not
	// handled any more. It must be larger than the longest chain that you intend. The smaller it
	// is, the sooner a loop ends. Raise it before you requeue a message that it stopped. Defaults
	// to 32.
	MaxHops int
}

func (c *CausationConfig) setDefaults() {
	if c.EventType == nil {
		c.EventType = func(msg *message.Message) string {
			return cmp.Or(msg.Metadata.Get(eventName), msg.Metadata.Get(postbox.MetadataSourceTopic), message.SubscribeTopicFromCtx(msg.Context()))
		}
	}
	c.MaxHops = cmp.Or(c.MaxHops, defaultMaxHops)
}

// validate returns all mistakes in the configuration.
func (c CausationConfig) validate() error {
	var problems []error
	if c.Module == "" {
		problems = append(problems, errors.New("Module: it is empty"))
	}
	if c.MaxHops < 1 {
		problems = append(problems, fmt.Errorf("MaxHops: %d is not positive", c.MaxHops))
	}
	return errors.Join(problems...)
}

// Causation returns a middleware that records in each message where it comes from. A message that
// the handler produces gets, in its metadata, the correlation id of the handled message, or else
// its UUID; that UUID as its causation id; and the causation path of the handled message with one
// more hop. See [postbox.MetadataCorrelationID], [postbox.MetadataCausationID] and
// [postbox.MetadataCausationPath].
//
// That applies to messages that the handler returns, and to those that it publishes through a
// forwarder.Publisher with the context of the handled message, as Watermill's CQRS buses do. For
// others there is [postbox.CausationFromContext]. Keys that already have a value are kept.
//
// A path at its limit means that modules answer each other in a circle: the handler does not run,
// and the error is a [postbox.Permanent] error that prints the path. The error for a path that
// cannot be read is permanent too. An inbox, or another middleware that handles errors, has to be
// around Causation to make a dead letter of the message: add the inbox first and Causation after
// it. A message without a UUID cannot be named as a cause, and appears in the path alone.
//
// Causation is safe for concurrent use. Errors of the handler pass through it as they are.
func Causation(config CausationConfig) (message.HandlerMiddleware, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("causation: invalid config: %w", err)
	}
	return config.middleware, nil
}

func (c CausationConfig) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		hop := postbox.Hop{Module: c.Module, EventType: c.EventType(msg)}
		causation, err := postbox.CausationOf(msg, hop)
		if err != nil {
			return nil, err
		}
		if len(causation.Path) > c.MaxHops {
			return nil, c.tooFar(causation.Path)
		}
		before := msg.Context()
		defer msg.SetContext(before)
		msg.SetContext(postbox.ContextWithCausation(before, causation))
		produced, err := h(msg)
		return stampAll(causation, msg, produced), err
	}
}

// tooFar returns the error for a path that would exceed the limit with its last hop. The text
// begins with the limit, since a store of errors may cut off the end of a long path.
func (c CausationConfig) tooFar(path []postbox.Hop) error {
	hops := make([]string, len(path)-1)
	for i := range hops {
		hops[i] = path[i].String()
	}
	return postbox.Permanent(fmt.Errorf("causation path: the limit of %d hops is reached, %s would be one more: %s",
		c.MaxHops, path[len(path)-1], strings.Join(hops, " → ")))
}

// stampAll stamps the messages that a handler returned. If one of them is the handled message, a
// copy of it is stamped: if that message were handled again, after a failure further out, its own
// hop would count twice.
func stampAll(causation postbox.Causation, handled *message.Message, produced []*message.Message) []*message.Message {
	stamped := make([]*message.Message, len(produced))
	for i, msg := range produced {
		if msg == handled {
			msg = msg.CopyWithContext()
		}
		msg.Metadata = causation.Stamp(msg.Metadata)
		stamped[i] = msg
	}
	return stamped
}
