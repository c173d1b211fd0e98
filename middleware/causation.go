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

// eventName is the metadata key under which the marshalers of Watermill's CQRS component name a type.
const eventName = "name"

// CausationConfig says how a module stands in causation paths, and how long they may get.
type CausationConfig struct {
	// Module is the name of the module that handles the message. Required; the same for all handlers of a module.
	Module string
	// EventType names what a message is. Defaults to its metadata "name", which Watermill's CQRS marshalers set, and
	// without it to the topic that the message came from, which for a deferred one is not that of the handler.
	EventType func(msg *message.Message) string
	// MaxHops is how many hops a path may have: a message at the end of so many is not handled any more. It must be
	// longer than any chain you mean, and the shorter it is, the less a loop does before it ends. Raise it before you
	// requeue a message that it stopped. Defaults to 32.
	MaxHops int
}

func (c *CausationConfig) setDefaults() {
	if c.EventType == nil {
		c.EventType = func(msg *message.Message) string {
			return cmp.Or(msg.Metadata.Get(eventName), msg.Metadata.Get(postbox.SourceTopic), message.SubscribeTopicFromCtx(msg.Context()))
		}
	}
	c.MaxHops = cmp.Or(c.MaxHops, defaultMaxHops)
}

// validate returns all that is wrong with the configuration.
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

// Causation is a middleware by which messages say where they come from: what a handler produces gets, in its
// metadata, the correlation id of the message handled, or else its UUID; that UUID as its causation id; and its
// causation path with a hop more. See [postbox.CorrelationID], [postbox.CausationID] and [postbox.CausationPath].
//
// That goes for messages that the handler returns, and for those that it publishes through a forwarder.Publisher
// with the context of the message handled, as Watermill's CQRS buses do when given that context. What it publishes
// in another way goes without, unless it uses [postbox.CausationFromContext] itself. Keys that have a value already
// are kept.
//
// Where the path is at its limit, modules answer each other in a circle: the handler does not run, and the error is
// a [postbox.PermanentError] that prints the path. So is the error for a path that cannot be read. An inbox, or
// whatever else handles errors, has to be around it to make a dead letter of the message: add the inbox first and
// Causation after it. A message without a UUID cannot be named as a cause, and is seen in the path alone.
//
// It keeps no state and costs no round trip; it is safe for concurrent use by any number of handlers.
type Causation struct {
	config CausationConfig
}

// NewCausation returns the middleware for the handlers of a module.
func NewCausation(config CausationConfig) (*Causation, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("causation: invalid config: %w", err)
	}
	return &Causation{config: config}, nil
}

// Middleware is Causation as Watermill's router takes it. Errors of the handler pass through it as they are.
func (c *Causation) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		hop := postbox.Hop{Module: c.config.Module, EventType: c.config.EventType(msg)}
		causation, err := postbox.CausationOf(msg, hop)
		if err != nil {
			return nil, err
		}
		if len(causation.Path) > c.config.MaxHops {
			return nil, c.tooFar(causation.Path)
		}
		before := msg.Context()
		defer msg.SetContext(before)
		msg.SetContext(postbox.ContextWithCausation(before, causation))
		produced, err := h(msg)
		return stampAll(causation, msg, produced), err
	}
}

// tooFar tells of a path that would go beyond the limit with its last hop. The limit comes first, since what keeps
// errors may cut off the end of a long one.
func (c *Causation) tooFar(path []postbox.Hop) error {
	hops := make([]string, len(path)-1)
	for i := range hops {
		hops[i] = path[i].String()
	}
	return postbox.Permanent(fmt.Errorf("causation path: the limit of %d hops is reached, %s would be one more: %s",
		c.config.MaxHops, path[len(path)-1], strings.Join(hops, " → ")))
}

// stampAll stamps what a handler returned. Where that is the message handled, a copy is stamped: handling that again,
// after a failure further out, would count its own hop twice.
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
