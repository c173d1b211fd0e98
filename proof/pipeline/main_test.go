package pipeline_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or, where a test has started this binary again, the process that it will
// kill.
func TestMain(m *testing.M) {
	if config := os.Getenv(childVariable); config != "" {
		os.Exit(runChild(config))
	}
	goleak.VerifyTestMain(m,
		// sarama's metrics share one goroutine a process, which never ends.
		goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// A Watermill subscriber that is closed while its connection breaks leaves one.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-amqp/v2/pkg/amqp.(*ConnectionWrapper).handleConnectionClose"),
	)
}
