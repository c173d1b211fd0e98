// Package history is what the processes of a torture run write down about themselves: each
// intention, commit, sight and effect, as one line of JSON in a file of its own, written at once,
// so that a killed process leaves all it said. The checker reads the files afterwards; it shares
// nothing else with the code under test.
package history

import "time"

// Kind says what a process did.
type Kind string

// What a process may write down. Each is written after it happened, except Intended, Sending, Saw
// and Requeueing.
const (
	// Intended is written by a producer before its transaction begins, and by a handler before it
	// emits a message: the message may or may not get committed.
	Intended Kind = "intended"
	// Committed is written by a producer, or for what a handler emitted, after COMMIT answered
	// without an error.
	Committed Kind = "committed"
	// RolledBack is written by a producer that knows its transaction did not commit.
	RolledBack Kind = "rolled back"
	// Unknown is written by a producer that lost the answer to its COMMIT.
	Unknown Kind = "unknown"
	// Sending is written by a forwarder's publisher before the broker is called.
	Sending Kind = "sending"
	// Sent is written by a forwarder's publisher after the broker accepted.
	Sent Kind = "sent"
	// Saw is written when a handler begins: one run of one message in one consumer.
	Saw Kind = "saw"
	// Applied is written after the transaction of the handler committed.
	Applied Kind = "applied"
	// Failed is written when a handler returns an error, or panics. A batch that fails is handled
	// in halves until the culprit is alone: it is written then only, when the failure is an
	// attempt.
	Failed Kind = "failed"
	// Duplicate is written when a consumer's inbox let a delivery go without running the handler to
	// a commit: the message had its effect before, or is a dead letter.
	Duplicate Kind = "duplicate"
	// Stored is written after a deferred message was stored, before the broker hears the ack.
	Stored Kind = "stored"
	// Requeueing is written by the operator before it requeues a dead letter. A crash may follow,
	// so the letter may be requeued without another word. Consumer is the consumer or queue, empty
	// for a letter of the outbox.
	Requeueing Kind = "requeueing"
	// Requeued is written by the operator after the letter was requeued.
	Requeued Kind = "requeued"
	// Healed is written by the operator before a message with plan Poison is requeued, if from then
	// on its handlers succeed.
	Healed Kind = "healed"
	// Tailed is written by a forwarder that has taken Number messages from the log of the database,
	// before it publishes them.
	Tailed Kind = "tailed"
	// Repeated is written by the driver after it published an old message to the broker once more,
	// past the outbox.
	Repeated Kind = "repeated"
	// Fault is written by the driver: what it broke, and when.
	Fault Kind = "fault"
)

// Record is one line of a history. Fields that a kind does not need are left out.
type Record struct {
	// Process names the process, and its incarnation: "consumer-2/3" is the third start of
	// consumer-2.
	Process string `json:"process"`
	// Line counts the records of one process from 1.
	Line int64 `json:"line"`
	// At is the clock of the process, which may be hours off: for reading, never for deciding.
	At time.Time `json:"at"`
	// System is the clock of the machine, which the faults leave alone: times of different
	// processes can be compared.
	System time.Time `json:"system"`

	Kind Kind `json:"kind"`

	// Message is the id of the message.
	Message string `json:"message,omitempty"`
	// Topic is the topic of the message in the outbox.
	Topic string `json:"topic,omitempty"`
	// Consumer is the consumer or queue that a handler works for.
	Consumer string `json:"consumer,omitempty"`
	// Key is the ordering key, and Turn the place of the message among those of its key, from 1, as
	// the producer's transaction counted it in the database.
	Key  string `json:"key,omitempty"`
	Turn int64  `json:"turn,omitempty"`
	// Plan is what the producer wants to happen: see Plan.
	Plan Plan `json:"plan,omitempty"`
	// Outage says that a failure was one of the surroundings, which must not count as an attempt.
	Outage bool `json:"outage,omitempty"`
	// Number is a number of messages.
	Number int `json:"number,omitempty"`
	// Detail is the error, or what the fault was.
	Detail string `json:"detail,omitempty"`
}

// Plan is how the handlers treat a message; the producer decides it, so that the checker knows what
// to expect.
type Plan string

// The plans.
const (
	// Plain messages are handled without an error.
	Plain Plan = "plain"
	// Slow messages take long, perhaps longer than a lease.
	Slow Plan = "slow"
	// Flaky messages fail a few times, fewer than the attempts allow, and then succeed.
	Flaky Plan = "flaky"
	// Panics messages panic once, then succeed.
	Panics Plan = "panics"
	// Poison messages fail each time: they must end among the dead letters, after the attempts and
	// no more.
	Poison Plan = "poison"
)
