package metrics_test

import (
	"fmt"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/metrics"
)

// A recorder of your own gets each measurement with its labels.
func ExampleRecorderFunc() {
	recorder := metrics.RecorderFunc(func(i *metrics.Instrument, value float64, labels ...string) {
		fmt.Println(i.Name, value, labels)
	})
	database := postbox.Database{Dialect: postbox.PostgreSQL, Metrics: recorder} // for publishers, forwarders, stores and queues

	database.Metrics.Record(metrics.Stored, 1, "outbox", "outbox", "orders") // what a publisher does
	// Output: postbox.messages.stored 1 [outbox outbox orders]
}
