package meter

import "github.com/postbox-go/watermill-postbox/metrics"

// Delivery is the value of the label "result" of a message that reached an inbox.
type Delivery string

// What becomes of a message that reaches an inbox.
const (
	Handled   Delivery = "handled"
	Stored    Delivery = "stored"
	Duplicate Delivery = "duplicate"
	Failed    Delivery = "failed"
)

// Delivered reports a message that reached an inbox. fresh is false for a duplicate; done is what a fresh one is.
func Delivered(recorder metrics.Recorder, consumer, topic string, done Delivery, fresh bool, err error) {
	if recorder == nil {
		return
	}
	result := done
	switch {
	case err != nil:
		result = Failed
	case !fresh:
		result = Duplicate
	}
	recorder.Record(metrics.Deliveries, 1, consumer, topic, string(result))
}
