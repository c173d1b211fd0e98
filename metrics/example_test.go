package metrics_test

import (
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// printer is a recorder of your own.
type printer struct{}

func (printer) Record(i *metrics.Instrument, value float64, labels ...string) {
	fmt.Println(i.Name, value, labels)
}

// A recorder of your own gets each measurement with its labels.
func ExampleRecorder() {
	database := postbox.Database{Dialect: postbox.PostgreSQL, Metrics: printer{}} // for publishers, forwarders, stores and queues

	stored := &metrics.Instrument{Name: "postbox.messages.stored", Kind: metrics.Counter}
	database.Metrics.Record(stored, 1, "outbox", "outbox", "orders") // what a publisher does
	// Output: postbox.messages.stored 1 [outbox outbox orders]
}
