package main

import (
	"github.com/postbox-go/watermill-postbox/benchmarks/deferred"
	"github.com/postbox-go/watermill-postbox/benchmarks/embedded"
	"github.com/postbox-go/watermill-postbox/benchmarks/inbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/benchmarks/relay"
)

// set is the scenarios that fill a page of the documentation, in the order in which they run.
type set struct {
	// page is its name, and that of the folder for its pictures.
	page string
	// rounds in which each contender has one turn, unless the command says otherwise.
	rounds    int
	scenarios []measure.Scenario
}

// quickRounds are those of a quick run.
const quickRounds = 1

// sets by the word of the command that chooses one.
func sets() map[string]set {
	return map[string]set{"peers": peers(), "curves": curves()}
}

// peers measures each path beside what a user would pick instead.
func peers() set {
	return set{page: "performance", rounds: 5, scenarios: []measure.Scenario{
		relay.Throughput(),
		relay.Parts(),
		relay.ThroughputMariaDB(),
		relay.SlowBroker(),
		relay.Backlog(),
		relay.Kafka(),
		relay.RabbitMQ(),
		relay.Latency(),
		relay.Steady(),
		relay.SteadyMariaDB(),
		relay.LongTx(),
		relay.LongTxDrain(),
		relay.Idle(),
		relay.IdleSpools(),
		inbox.Write(),
		inbox.Unique(),
		inbox.Once(),
		inbox.OnceMariaDB(),
		inbox.Receipts(),
		inbox.History(),
		deferred.Ingest(),
		deferred.IngestMariaDB(),
		deferred.Work(),
		deferred.WorkMariaDB(),
		deferred.History(),
		deferred.Sequential(),
		embedded.Pipeline(),
		relay.Limits(),
		relay.Metrics(),
		inbox.Metrics(),
		deferred.Metrics(),
		relay.Memory(),
		relay.Scale(),
		relay.TailLatency(),
		relay.TailThroughput(),
		relay.TailIdle(),
	}}
}

// curves measures how the paths grow with what they are given.
func curves() set {
	return set{page: "scaling", rounds: 3, scenarios: []measure.Scenario{
		inbox.Clients(),
		inbox.Payload(),
		relay.Scale(),
		relay.Payload(),
		relay.Keys(),
		relay.KeysSlowly(),
		deferred.Keys(),
	}}
}
