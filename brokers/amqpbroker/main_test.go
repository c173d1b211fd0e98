package amqpbroker_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Every publisher must leave no goroutine behind. A Watermill subscriber that is closed while it
// reconnects leaves one.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp.(*ConnectionWrapper).handleConnectionClose",
	))
}
