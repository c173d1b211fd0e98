package main

import (
	"github.com/postbox-go/watermill-postbox/benchmarks/deferred"
	"github.com/postbox-go/watermill-postbox/benchmarks/embedded"
	"github.com/postbox-go/watermill-postbox/benchmarks/inbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/benchmarks/relay"
)

// scenarios in the order in which they run.
func scenarios() []measure.Scenario {
	return []measure.Scenario{
		relay.Throughput(),
		relay.SlowBroker(),
		relay.Backlog(),
		relay.Kafka(),
		relay.RabbitMQ(),
		relay.Latency(),
		relay.Idle(),
		inbox.Write(),
		inbox.Once(),
		deferred.Ingest(),
		deferred.Work(),
		deferred.Sequential(),
		embedded.Pipeline(),
		relay.Memory(),
		relay.Scale(),
	}
}
