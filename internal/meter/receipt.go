package meter

import (
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// Arrival is the value of the label "result" of a receipt that reached the producer.
type Arrival string

// What becomes of a receipt that reaches the producer.
const (
	Awaited    Arrival = "awaited"
	Late       Arrival = "late"
	Unexpected Arrival = "unexpected"
	Repeated   Arrival = "duplicate"
	Expired    Arrival = "expired"
	Malformed  Arrival = "malformed"
)

// Received reports a receipt that reached the producer. Its names come from outside, so they are
// labels only if a row awaited them: each other name would be one more series, for ever.
func Received(recorder metrics.Recorder, topic, consumer string, result Arrival) {
	if recorder != nil {
		if result != Awaited && result != Late {
			topic, consumer = "", ""
		}
		recorder.Record(instruments.Receipts, 1, topic, consumer, string(result))
	}
}

// Missed reports a receipt that did not come in time.
func Missed(recorder metrics.Recorder, topic, consumer string) {
	if recorder != nil {
		recorder.Record(instruments.ReceiptsMissed, 1, topic, consumer)
	}
}
