// Package instruments lists what Postbox measures. A recorder gets one of the list with each value.
package instruments

import (
	"slices"

	"github.com/postbox-go/watermill-postbox/metrics"
)

// Labels that several instruments have. A spool, which is an outbox or a queue, has two: its kind,
// "outbox" or "queue", and its name.
var (
	ofSpool = []string{"kind", "name"}
	ofTopic = []string{"kind", "name", "topic"}
	// ofCall are those of a call, under the names that OpenTelemetry's conventions have for them.
	ofCall = []string{"messaging.system", "messaging.operation.name", "messaging.destination.name", "error.type", "kind", "name"}
)

func with(labels []string, more ...string) []string { return slices.Concat(labels, more) }

// Bounds of histograms. Times begin at what a commit in memory takes, and end where somebody has to
// act.
var (
	seconds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	numbers = []float64{1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// What producers and processes report.
var (
	// Stored counts messages that were written, before their transactions commit.
	Stored = &metrics.Instrument{
		Name: "postbox.messages.stored", Kind: metrics.Counter, Unit: "{message}", Labels: ofTopic,
		Help: "Messages that publishers and inboxes have written. Those whose transaction is rolled back later are included; those that operators requeue or sources bring are not.",
	}
	// Ended counts outcomes.
	Ended = &metrics.Instrument{
		Name: "postbox.messages.ended", Kind: metrics.Counter, Unit: "{message}", Labels: with(ofTopic, "outcome"),
		Help: "Outcomes of messages, after their commit: done, retry (a failed attempt), wait (no attempt was counted), parked (waits for an operator), dead (became a dead letter).",
	}
	// Published times calls of the broker's publisher.
	Published = &metrics.Instrument{
		Name: "messaging.client.operation.duration", Kind: metrics.Histogram, Unit: "s", Labels: ofCall, Buckets: seconds,
		Help: "Duration of calls of the broker's publisher by forwarders. Without error.type they succeeded.",
	}
	// Handled times handlers.
	Handled = &metrics.Instrument{
		Name: "messaging.process.duration", Kind: metrics.Histogram, Unit: "s", Labels: ofCall, Buckets: seconds,
		Help: "Duration of handlers of queues, with their transactions. Without error.type they succeeded.",
	}
	// Latency is the time that messages take in all.
	Latency = &metrics.Instrument{
		Name: "postbox.message.latency", Kind: metrics.Histogram, Unit: "s", Labels: ofTopic, Buckets: seconds,
		Help: "Time from when a message was stored until it was done, by the clock of the database, for messages that never had to wait for a time or another attempt.",
	}
	// Attempts is how often messages were tried.
	Attempts = &metrics.Instrument{
		Name: "postbox.message.attempts", Kind: metrics.Histogram, Unit: "{attempt}", Labels: ofTopic, Buckets: numbers,
		Help: "Attempts that messages took until they were done or dead.",
	}
	// Batch is the size of calls.
	Batch = &metrics.Instrument{
		Name: "postbox.batch.size", Kind: metrics.Histogram, Unit: "{message}", Labels: ofSpool, Buckets: numbers,
		Help: "Messages in one call of the publisher, or given to a queue's handler together.",
	}
	// Settled times settlements.
	Settled = &metrics.Instrument{
		Name: "postbox.settle.duration", Kind: metrics.Histogram, Unit: "s", Labels: ofSpool, Buckets: seconds,
		Help: "Duration of the transactions that record outcomes.",
	}
	// Reads counts reads.
	Reads = &metrics.Instrument{
		Name: "postbox.reads", Kind: metrics.Counter, Unit: "{read}", Labels: with(ofSpool, "result"),
		Help: "Reads of messages by this process, and of settings during a pause: ok or failed.",
	}
	// LastRead is when the last read succeeded.
	LastRead = &metrics.Instrument{
		Name: "postbox.last_read.time", Kind: metrics.Gauge, Unit: "s", Labels: ofSpool,
		Help: "When this process last read the outbox or the queue with success, or saw that it is paused or its memory full, in seconds since 1970.",
	}
	// LanesHeld is the number of lanes of this process.
	LanesHeld = &metrics.Instrument{
		Name: "postbox.lanes.held", Kind: metrics.Gauge, Unit: "{lane}", Labels: ofSpool,
		Help: "Lanes that this process holds.",
	}
	// LanesLost counts lanes that another process took.
	LanesLost = &metrics.Instrument{
		Name: "postbox.lanes.lost", Kind: metrics.Counter, Unit: "{lane}", Labels: ofSpool,
		Help: "Lanes that this process lost because it did not renew its lease in time.",
	}
	// CircuitOpen is 1 during an outage.
	CircuitOpen = &metrics.Instrument{
		Name: "postbox.circuit.open", Kind: metrics.Gauge, Unit: "1", Labels: ofTopic,
		Help: "1 while this process sees an outage of the topic, or of what a queue's handler needs, otherwise 0.",
	}
	// HeldUp is the number of messages that wait for a limit.
	HeldUp = &metrics.Instrument{
		Name: "postbox.limit.waiting", Kind: metrics.Gauge, Unit: "{message}", Labels: with(ofSpool, "limit"),
		Help: "Messages in the memory of this process that wait for a limit: total or topic. More may wait in the database. Only with limits.",
	}
	// LogReading is 1 while the log is read.
	LogReading = &metrics.Instrument{
		Name: "postbox.log.reading", Kind: metrics.Gauge, Unit: "1", Labels: ofSpool,
		Help: "1 while this process reads the log of the database for the outbox, and 0 if it cannot, or stands by because another process does. Only with forwarder.Config.Tail.",
	}
	// LogTaken counts messages of the log.
	LogTaken = &metrics.Instrument{
		Name: "postbox.log.messages", Kind: metrics.Counter, Unit: "{message}", Labels: ofSpool,
		Help: "Messages that the log of the database has told this process of.",
	}
	// LogRetained is how much log is kept.
	LogRetained = &metrics.Instrument{
		Name: "postbox.log.retained", Kind: metrics.Gauge, Unit: "By", Labels: ofSpool,
		Help: "Bytes of log that the database server keeps for the slot of this process, which begins before the oldest open transaction that has written.",
	}
	// Deliveries counts messages that inboxes received.
	Deliveries = &metrics.Instrument{
		Name: "postbox.inbox.deliveries", Kind: metrics.Counter, Unit: "{message}", Labels: []string{"consumer", "topic", "result"},
		Help: "Messages that reached an inbox: handled, duplicate (handled before, or stored before), stored (in a queue), failed. In a transaction of others, before its commit.",
	}
	// Receipts counts receipts.
	Receipts = &metrics.Instrument{
		Name: "postbox.receipts.received", Kind: metrics.Counter, Unit: "{receipt}", Labels: []string{"topic", "consumer", "result"},
		Help: "Receipts that reached the producer: awaited, late, unexpected (nothing awaited it), duplicate, expired (ignored), malformed. Only awaited and late ones have a topic and a consumer.",
	}
	// ReceiptsMissed counts time-outs of receipts.
	ReceiptsMissed = &metrics.Instrument{
		Name: "postbox.receipts.missed", Kind: metrics.Counter, Unit: "{receipt}", Labels: []string{"topic", "consumer"},
		Help: "Receipts that did not come in time: the consumer has not handled the message, or its receipt is still on the way.",
	}
)

// What is counted in the database. The label state of Backlog has values that overlap, as in
// admin.QueueInfo.
var (
	// Backlog is the number of messages.
	Backlog = &metrics.Instrument{
		Name: "postbox.backlog.messages", Kind: metrics.Gauge, Unit: "{message}", Labels: with(ofSpool, "state"), Database: true,
		Help: "Messages that are neither done nor dead. The state is pending for all of them; due, failing, parked and in_flight are parts of these. 10,001 means more than 10,000.",
	}
	// BacklogAge is for how long the oldest due message has been due.
	BacklogAge = &metrics.Instrument{
		Name: "postbox.backlog.age", Kind: metrics.Gauge, Unit: "s", Labels: ofSpool, Database: true,
		Help: "For how long the oldest due message has been due; 0 without one. A ready message is due since it was written or since the time of its batch, a scheduled or failed one since its time has come.",
	}
	// CallAge is for how long a call has not returned.
	CallAge = &metrics.Instrument{
		Name: "postbox.call.age", Kind: metrics.Gauge, Unit: "s", Labels: ofSpool, Database: true,
		Help: "For how long the call of a publisher or a handler has run that has not returned for longest, in all processes; 0 below 10 s.",
	}
	// DeadLetters is the number of dead letters.
	DeadLetters = &metrics.Instrument{
		Name: "postbox.dead_letters.messages", Kind: metrics.Gauge, Unit: "{message}", Labels: ofSpool, Database: true,
		Help: "Dead letters of an outbox or a queue that no operator has resolved, among the latest 10,000; 10,001 means more.",
	}
	// InboxDeadLetters is the number of dead letters of inboxes.
	InboxDeadLetters = &metrics.Instrument{
		Name: "postbox.inbox.dead_letters.messages", Kind: metrics.Gauge, Unit: "{message}", Labels: []string{"consumer"}, Database: true,
		Help: "Dead letters of the inboxes of a consumer that no operator has resolved, among the latest 10,000; 10,001 means more. Without any, only a consumer that keeps a history has a value, 0.",
	}
	// Processes is the number of processes.
	Processes = &metrics.Instrument{
		Name: "postbox.processes", Kind: metrics.Gauge, Unit: "{process}", Labels: ofSpool, Database: true,
		Help: "Forwarders or subscribers that process the outbox or the queue, and have renewed their membership in time.",
	}
	// Paused is 1 during a pause.
	Paused = &metrics.Instrument{
		Name: "postbox.paused", Kind: metrics.Gauge, Unit: "1", Labels: ofSpool, Database: true,
		Help: "1 while an operator has paused the outbox or the queue, otherwise 0.",
	}
	// PausedKeys is the number of paused keys.
	PausedKeys = &metrics.Instrument{
		Name: "postbox.paused.keys", Kind: metrics.Gauge, Unit: "{key}", Labels: ofSpool, Database: true,
		Help: "Keys that an operator has paused.",
	}
	// PausedTopics is the number of paused topics.
	PausedTopics = &metrics.Instrument{
		Name: "postbox.paused.topics", Kind: metrics.Gauge, Unit: "{topic}", Labels: ofSpool, Database: true,
		Help: "Topics of an outbox that an operator has paused.",
	}
	// StuckKeys is the number of keys that wait for a failed message.
	StuckKeys = &metrics.Instrument{
		Name: "postbox.stuck.keys", Kind: metrics.Gauge, Unit: "{key}", Labels: ofSpool, Database: true,
		Help: "Keys whose first message has failed and waits for its next attempt, or is parked: at most 1000 are counted.",
	}
	// StuckAge is the age of the oldest of these failures.
	StuckAge = &metrics.Instrument{
		Name: "postbox.stuck.age", Kind: metrics.Gauge, Unit: "s", Labels: ofSpool, Database: true,
		Help: "Time since the first failure of the key that has been stuck for longest, by the clock of the database; 0 without one. With more than 1000 stuck keys, of some of them.",
	}
	// DatabaseUp tells whether the others could be counted.
	DatabaseUp = &metrics.Instrument{
		Name: "postbox.database.up", Kind: metrics.Gauge, Unit: "1", Database: true,
		Help: "1 if the database could be asked for the other values in time, otherwise 0. Then the others are missing.",
	}
)

var instruments = []*metrics.Instrument{
	Stored, Ended, Published, Handled, Latency, Attempts, Batch, Settled, Reads, LastRead, LanesHeld, LanesLost, CircuitOpen, HeldUp, LogReading, LogTaken, LogRetained, Deliveries, Receipts, ReceiptsMissed,
	Backlog, BacklogAge, CallAge, DeadLetters, InboxDeadLetters, Processes, Paused, PausedKeys, PausedTopics, StuckKeys, StuckAge, DatabaseUp,
}

// All returns all that Postbox measures: first what processes report, then what is counted in the
// database.
func All() []*metrics.Instrument { return slices.Clone(instruments) }
