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

// String returns the hop as it stands in a causation path, which [CausationPath] explains.
func (h Hop) String() string { return url.PathEscape(h.Module) + "/" + url.PathEscape(h.EventType) }

// Causation is what the messages produced by one handling have in common: where they come from. It travels from
// the handler to the publisher in a context, and from process to process in metadata.
//
// middleware.Causation makes one for each message that it sees. Make one yourself where a chain begins, with the
// id of an HTTP request as its CorrelationID. It is a value: code that has got one must not change its Path, and may
// use it concurrently.
type Causation struct {
	// CorrelationID is that of the message handled: all of a chain has the same.
	CorrelationID string
	// CausationID is the UUID of the message handled.
	CausationID string
	// Path leads from the first message of the chain to the one handled, oldest hop first.
	Path []Hop

	// handled is what the metadata of the message handled said: a copy of that message says it still.
	handled struct{ causationID, path string }
}

// CausationOf returns the causation of whatever handling msg in hop produces: the correlation id of msg, or else its
// UUID, the UUID of msg as causation id, and its path with the hop at the end. It leaves msg as it is.
//
// A path that cannot be read is a [PermanentError]: with a new path in its place, a loop could go on for ever.
func CausationOf(msg *message.Message, hop Hop) (Causation, error) {
	causation := Causation{CorrelationID: msg.Metadata.Get(CorrelationID), CausationID: msg.UUID}
	if causation.CorrelationID == "" {
		causation.CorrelationID = msg.UUID
	}
	causation.handled.causationID = msg.Metadata.Get(CausationID)
	causation.handled.path = msg.Metadata.Get(CausationPath)
	var err error
	if causation.Path, err = decodePath(causation.handled.path); err != nil {
		return Causation{}, Permanent(fmt.Errorf("metadata %s is not a causation path: %w", CausationPath, err))
	}
	causation.Path = append(causation.Path, hop)
	return causation, nil
}

// Stamp returns a copy of metadata, which may be nil, that also says where the message comes from. A key that has a
// value stays as it is: set the path to "[]" for a message that begins a new one. Only what a copy of the handled
// message still says of that message is replaced, or handing messages on would hide a loop.
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
	set(CorrelationID, c.CorrelationID, "")
	set(CausationID, c.CausationID, c.handled.causationID)
	set(CausationPath, encodePath(c.Path), c.handled.path)
	return stamped
}

type causationKey struct{}

// ContextWithCausation returns a context that carries the causation. A forwarder.Publisher stamps each message whose
// context has one.
func ContextWithCausation(ctx context.Context, causation Causation) context.Context {
	return context.WithValue(ctx, causationKey{}, causation)
}

// CausationFromContext returns the causation that the context carries, and whether it carries one.
func CausationFromContext(ctx context.Context) (Causation, bool) {
	causation, ok := ctx.Value(causationKey{}).(Causation)
	return causation, ok
}

// encodePath writes a path as metadata, and no path as "".
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

// decodePath reads what encodePath wrote, or another program in the same format. What it cannot read stays out of its
// errors, since the metadata may hold anything.
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
