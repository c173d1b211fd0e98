package checker

import (
	"strings"
	"time"

	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// Evidence is all that a run is judged by.
type Evidence struct {
	// Flows are the consumers there were.
	Flows []ledger.Flow
	// Records are those of all processes, each process's in the order in which it wrote them.
	Records []history.Record
	// Database is what was found after the run.
	Database Database
	// OutboxKeptSince is since when the outbox keeps all that it publishes, by the database's
	// clock; zero for never.
	OutboxKeptSince time.Time
	// CaughtUp is how long after the last fault was healed nothing waited any more, or
	// [NeverCaughtUp].
	CaughtUp time.Duration
	// Failovers are those there were, in their order.
	Failovers []Failover
	// Troubles are the faults that processes felt, and when.
	Troubles []Trouble
	// Memory is what the processes occupied now and then.
	Memory []Sample
	// Skew is how far the clock of a process, named without its incarnation, is ahead of the
	// others. It is for telling the story in its order alone.
	Skew   map[string]time.Duration
	Bounds Bounds
}

// NeverCaughtUp is the [Evidence.CaughtUp] of a run that did not in the time it had.
const NeverCaughtUp time.Duration = -1

// Bounds are what the run has to keep to. The zero value of one bounds nothing.
type Bounds struct {
	// CatchUp is how long after the end of the faults everything has to be through.
	CatchUp time.Duration
	// Memory is how many bytes a process may occupy.
	Memory int64
	// Clock is how far a time that Postbox stored may be outside the run, by the database's clock:
	// more than a transaction and a retry may take, and much less than the clocks of the processes
	// are off.
	Clock time.Duration
}

// Trouble is a fault while it lasted, by the clock of the machine.
type Trouble struct {
	Kind string
	// Process is the process that it happened to, without its incarnation; "" for all of them.
	Process string
	// Sleeps says that the process did nothing meanwhile, Database that its connections to the
	// database may have ended or hung.
	Sleeps, Database bool
	From, To         time.Time
}

// concerns says whether it happened to an incarnation of a process.
func (t Trouble) concerns(process string) bool {
	name, _, _ := strings.Cut(process, "/")
	return t.Process == "" || t.Process == name
}

// Sample is what a process occupied at one instant.
type Sample struct {
	Process string
	At      time.Time
	Bytes   int64
}

// Database is what stands in the tables of the run and of Postbox. All times are of the database's
// clock.
type Database struct {
	// ReadAt is when it was read.
	ReadAt  time.Time
	Intents []Intent
	Effects []Effect
	// Leases are the changes of holders and tokens, in their order.
	Leases   []Lease
	Pending  []Pending
	Letters  []Letter
	Failures []Failure
	// Kept are messages that are done, of queues that keep them.
	Kept []Kept
	// OldestClaim and NewestClaim are zero where there are no claims.
	OldestClaim, NewestClaim time.Time
}

// Intent is a row of torture_intents.
type Intent struct {
	ledger.Intent
	ID int64
	At time.Time
}

// Effect is a row of torture_effects.
type Effect struct {
	ledger.Effect
	ID int64
	At time.Time
}

// Lease is a change of a lane's holder or token.
type Lease struct {
	ID     int64
	Spool  string
	Lane   int
	Token  int64
	Holder string // "" when the lane was handed back
	// Until is how long the lane is held from now on, Before how long it was; zero for not at all.
	Until, Before, At time.Time
}

// Pending is a message that stands in the outbox or in a queue.
type Pending struct {
	ID       int64
	Queue    string // "" for the outbox
	Topic    string
	Message  string
	Key      string
	Attempts int
	State    int
	Created  time.Time
	// Available is when it is due, zero for a message that waits for an operator.
	Available time.Time
}

// Letter is a dead letter. Resolved ones count: the message is dead all the same.
type Letter struct {
	ID int64
	// Consumer is the consumer or the queue where it died, "" for the outbox.
	Consumer string
	Topic    string
	Message  string
	Key      string
	Attempts int
	Error    string
	Subject  string
	Created  time.Time
	Died     time.Time
}

// Failure is an entry of a failure history. Attempt 0 is no attempt: an operator did something, or
// the message began to wait without one.
type Failure struct {
	ID      int64
	Subject string
	Attempt int
	At      time.Time
	Error   string
	Process string
}

// Kept is a message that is done.
type Kept struct {
	ID      int64
	Queue   string // "" for the outbox
	Message string
	Created time.Time
	Done    time.Time
}
