package postbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Hop is one step of a causation path: a module, and the type of the event that it handled.
type Hop struct{ Module, EventType string }

// String returns the hop in the form that it has in a causation path: see [MetadataCausationPath].
func (h Hop) String() string { return url.PathEscape(h.Module) + "/" + url.PathEscape(h.EventType) }

// Causation says where the messages come from that one run of a handler produces. It travels from
// the handler to the publisher in a context, and from process to process in metadata.
//
// middleware.Causation makes one for each message that it handles. Make one yourself where a chain
// begins, with the id of an HTTP request as its CorrelationID. It is a value: code that has
// received one must not change its Path, and may use it concurrently.
type Causation struct {
	// CorrelationID is the correlation id of the handled message. All messages of a chain have the
	// same one.
	CorrelationID string
	// CausationID is the UUID of the handled message.
	CausationID string
	// Path leads from the first message of the chain to the handled one, oldest hop first.
	Path []Hop

	// handled holds what the metadata of the handled message said. A copy of that message still
	// says it.
	handled struct{ causationID, path string }
}

// CausationOf returns the causation of all messages that are produced when hop handles msg: the
// correlation id of msg, or else its UUID; the UUID of msg as causation id; and the path of msg
// with the hop at the end. It does not change msg.
//
// If the path cannot be read, the error is a [Permanent] error: with a new path in its place, a
// loop could go on for ever.
func CausationOf(msg *message.Message, hop Hop) (Causation, error) {
	causation := Causation{CorrelationID: msg.Metadata.Get(MetadataCorrelationID), CausationID: msg.UUID}
	if causation.CorrelationID == "" {
		causation.CorrelationID = msg.UUID
	}
	causation.handled.causationID = msg.Metadata.Get(MetadataCausationID)
	causation.handled.path = msg.Metadata.Get(MetadataCausationPath)
	var err error
	if causation.Path, err = decodePath(causation.handled.path); err != nil {
		return Causation{}, Permanent(fmt.Errorf("metadata %s is not a causation path: %w", MetadataCausationPath, err))
	}
	causation.Path = append(causation.Path, hop)
	return causation, nil
}

// Stamp returns a copy of metadata, which may be nil, with the values of the causation added. A key
// that already has a value is kept: set the path to "[]" for a message that begins a new chain.
// Stamp replaces only values that a copy of the handled message still has from that message,
// because a handler that hands messages on would otherwise hide a loop.
func (c Causation) Stamp(metadata message.Metadata) message.Metadata {
	stamped := maps.Clone(metadata)
	if stamped == nil {
		stamped = message.Metadata{}
	}
	set := func(key, value, handled string) {
		if current := stamped[key]; value != "" && (current == "" || current == handled) {
			stamped[key] = value
		}
	}
	set(MetadataCorrelationID, c.CorrelationID, "")
	set(MetadataCausationID, c.CausationID, c.handled.causationID)
	set(MetadataCausationPath, encodePath(c.Path), c.handled.path)
	return stamped
}

type causationKey struct{}

// ContextWithCausation returns a context that carries the causation. A forwarder.Publisher stamps
// each message whose context has one.
func ContextWithCausation(ctx context.Context, causation Causation) context.Context {
	return context.WithValue(ctx, causationKey{}, causation)
}

// CausationFromContext returns the causation that the context carries, and whether there is one.
func CausationFromContext(ctx context.Context) (Causation, bool) {
	causation, ok := ctx.Value(causationKey{}).(Causation)
	return causation, ok
}

// encodePath writes a path as metadata. An empty path is "".
func encodePath(path []Hop) string {
	if len(path) == 0 {
		return ""
	}
	hops := make([]string, len(path))
	for i, hop := range path {
		hops[i] = hop.String()
	}
	text, _ := json.Marshal(hops) // strings can always be written
	return string(text)
}

// decodePath reads a path that encodePath, or another program, wrote in this format. Its errors do
// not quote the text, since the metadata may hold anything.
func decodePath(text string) ([]Hop, error) {
	if text == "" {
		return nil, nil
	}
	var hops []string
	if err := json.Unmarshal([]byte(text), &hops); err != nil {
		return nil, err
	}
	if hops == nil {
		return nil, errors.New("it is null")
	}
	path := make([]Hop, len(hops), len(hops)+1) // the next hop comes behind it
	for i, hop := range hops {
		module, eventType, found := strings.Cut(hop, "/")
		if !found || strings.Contains(eventType, "/") {
			return nil, fmt.Errorf("hop %d is not module/event type", i+1)
		}
		var moduleErr, typeErr error
		path[i].Module, moduleErr = url.PathUnescape(module)
		path[i].EventType, typeErr = url.PathUnescape(eventType)
		if err := errors.Join(moduleErr, typeErr); err != nil {
			return nil, fmt.Errorf("hop %d: a %% is not followed by two hexadecimal digits", i+1)
		}
	}
	return path, nil
}
