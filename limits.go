package postbox

// Limit bounds how fast messages are handed to a handler, or to the broker's publisher. A field
// that is zero sets no limit.
type Limit struct {
	// PerSecond is the number of messages that start in a second, at most 1,000,000. It may be a
	// fraction: 0.1 is one message in 10 s, and 0.00001, the least, is one in 28 hours. Attempts of
	// failed messages count, but not the calls for each message of a batch that a broker refused.
	PerSecond float64
	// MaxConcurrent is the number of calls of the handler, or of the broker's publisher, that run
	// at the same time. A batch is one call.
	MaxConcurrent int
}

// Limits bound how fast all processes together work off an outbox or a queue. The zero value limits
// nothing. A message must be within all limits that concern it. One that has to wait costs no
// attempt, and its key keeps its order within the topic.
//
// The database counts. A process takes from it the messages of up to a quarter of a second, and has
// that long to start them, so what one does not use the others get. In any t seconds at most
// PerSecond × (t + 0.75) messages start, at most 1.75 times the rate in a second, and two more if
// the rate is below four a second; a batch starts whole, and the next one waits for as long as its
// messages take. A process that crashes loses what it had taken and not used.
//
// MaxConcurrent holds at every moment, but for handlers whose process has lost its leases and that
// go on nevertheless, because it was suspended or could not reach the database for longer than its
// lease. After a crash, what its handlers had is free when its lease is over.
//
// All processes should have the same limits. While they differ, as during a deployment, the highest
// one holds for all of them together.
type Limits struct {
	// Total is for the whole outbox or queue.
	Total Limit
	// Topics are limits for single topics of an outbox, by the name of the topic.
	Topics map[string]Limit
}
