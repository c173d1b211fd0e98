package postbox

import "time"

// Tuning is how a forwarder or the worker of a queue reads. Leave it alone: the defaults are
// measured ones, and few services need another value. ListenDSN is the exception, if producers are
// other processes.
type Tuning struct {
	// ListenDSN is the data source name with which lib/pq connects to LISTEN for wake-ups from
	// other processes, on PostgreSQL. It takes one connection. Defaults to none: messages that
	// other processes store are found by polling.
	ListenDSN string
	// PollMin and PollMax bound the pause between two polls that find nothing; the pause doubles
	// from one to the other. Polling finds every message; wake-ups only make it fast. Default to 5
	// ms and 1 s.
	PollMin, PollMax time.Duration
	// PageSize is the number of messages to read at once. Up to three times as many are held in
	// memory, each with its payload if that is small. Defaults to 2000, for batches to at least
	// their size.
	PageSize int
	// MaxBytesInFlight bounds, in bytes, the payloads above 16 KiB that calls of publishers or
	// handlers hold in memory, with their metadata: they are loaded one by one. A payload that is
	// larger than the bound goes alone, and a batch gets fewer messages. A queue takes at most
	// twice the bound, since each handler gets a copy. Defaults to 64 MiB.
	MaxBytesInFlight int
	// Lease is how long the lanes of a crashed process remain reserved for it. A live process
	// renews its lease after a third of it, so a handler may run for hours. Defaults to 15 s.
	Lease time.Duration
	// ProbeMin and ProbeMax bound the pause until a topic or queue in an outage, or a message of an
	// outbox that failed with an unknown error, is tried again; the pause doubles from one to the
	// other. Default to 100 ms and 30 s.
	ProbeMin, ProbeMax time.Duration
	// FailuresInRow is the number of different messages to one topic of an outbox that must fail in
	// a row, with errors that Classify does not know, before the topic is taken to be in an outage.
	// A message with counted attempts is no evidence. Defaults to 5. A queue has none.
	FailuresInRow int
	// OutageLimit is how long failures with unknown errors are taken for an outage while no message
	// gets through to the topic. After it each counts as an attempt, so that messages that can
	// never be published come to an end. Defaults to 24 h. A queue has none.
	OutageLimit time.Duration
	// CloseTimeout is how long calls to the broker may go on after Close. Then their context is
	// cancelled, and their messages are published again later. A publisher that ignores the context
	// has two more seconds; then the lane of its messages is free when the lease has run out.
	//
	// At its end, Close records which messages were published, and hands back lanes. While the
	// database does not answer, each takes two seconds, or CloseTimeout if that is longer, but 30 s
	// at most. It logs how many it could not record: these are published again. So close the pool
	// of connections after the forwarder. Defaults to 30 s. A queue has that of its store.
	CloseTimeout time.Duration
}
