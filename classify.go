package postbox

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/commit"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// ErrorClass says whether an error of a broker or a database is the fault of the message.
type ErrorClass int

const (
	// Unclassified errors may be the message's fault or the destination's. They count as an attempt
	// only after another message to the same destination got through, or after a time limit: see
	// forwarder.Config.OutageLimit.
	Unclassified ErrorClass = iota
	// Outage errors are about the connection or the service, not about the message. Messages to the
	// destination wait for a while, and no attempt is counted.
	Outage
	// MessageFault errors are about the message: too large, not encodable. They count at once.
	MessageFault
)

// String returns the name of the class.
func (c ErrorClass) String() string {
	switch c {
	case Outage:
		return "outage"
	case MessageFault:
		return "message fault"
	case Unclassified:
		return "unclassified"
	default:
		return "unknown class"
	}
}

// Classifier returns the class of an error, or Unclassified for an error that it does not know, so
// that classifiers can be chained with [Classifiers].
type Classifier func(error) ErrorClass

// Classifiers asks each classifier in turn and returns the first answer that is not Unclassified. A
// nil classifier is ignored.
func Classifiers(all ...Classifier) Classifier {
	all = slices.DeleteFunc(slices.Clone(all), func(classify Classifier) bool { return classify == nil })
	return func(err error) ErrorClass {
		for _, classify := range all {
			if class := classify(err); class != Unclassified {
				return class
			}
		}
		return Unclassified
	}
}

// ClassifyNetwork classifies the connection errors of Go's standard library as an outage: refused,
// reset, closed, timed out, unknown host. [Permanent] errors are faults of the message.
func ClassifyNetwork(err error) ErrorClass {
	if verdict.IsPermanent(err) {
		return MessageFault
	}
	if commit.IsAway(err) {
		return Outage
	}
	return Unclassified
}
