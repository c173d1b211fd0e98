package receipts

import (
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// arrival is the value of the label "result" of a receipt that reached the producer.
type arrival string

// What becomes of a receipt that reaches the producer.
const (
	awaited    arrival = "awaited"
	late       arrival = "late"
	unexpected arrival = "unexpected"
	repeated   arrival = "duplicate"
	expired    arrival = "expired"
	malformed  arrival = "malformed"
)

// countReceived reports a receipt that reached the producer. Its names come from outside, so they
// are labels only if a row awaited them: each other name would be one more series, for ever.
func countReceived(recorder metrics.Recorder, topic, consumer string, result arrival) {
	if recorder != nil {
		if result != awaited && result != late {
			topic, consumer = "", ""
		}
		recorder.Record(instruments.Receipts, 1, topic, consumer, string(result))
	}
}

// countMissed reports a receipt that did not come in time.
func countMissed(recorder metrics.Recorder, topic, consumer string) {
	if recorder != nil {
		recorder.Record(instruments.ReceiptsMissed, 1, topic, consumer)
	}
}
