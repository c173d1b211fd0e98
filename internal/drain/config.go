package drain

import (
	"context"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

// Handler handles a batch of messages of one topic and returns one outcome for each, in the same
// order. Messages of one key are in order within the batch. After a message that did not succeed,
// the handler must not handle later messages of its key, and returns the verdict [spool.Postpone]
// for them.
type Handler interface {
	Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome
	// Excluded lists the topics whose messages must not be read now. A handler that postpones a
	// message excludes its topic, or the message is handed out again immediately. When the topic is
	// available again, the handler calls [Drainer.Rescan].
	Excluded() []string
}

// HeadPolicy says what happens to a key whose oldest message keeps failing. While that message has
// attempts left, its key always waits.
type HeadPolicy int

const (
	// HeadSkip moves the message to the dead letters, and its key continues.
	HeadSkip HeadPolicy = iota
	// HeadPark leaves the message where it is, and its key waits until an operator decides.
	HeadPark
)

const (
	// leaseRenewals is the number of renewals within the duration of a lease.
	leaseRenewals = 3
	// InlineBytes is the size up to which payloads are read with their page. It bounds the size of
	// a page.
	InlineBytes = 16 << 10
	// pagesInMemory is the maximum number of pages that a drainer holds: one is read, one handled,
	// one removed.
	pagesInMemory = 3
)

// Config configures a drainer. The caller of [New] has set and checked every field. The settings
// that operators have stored for the spool, its [spool.Settings], take precedence.
type Config struct {
	Identity
	Amounts
	Times
	Rules
	Hooks

	Retry   postbox.RetryProfile
	Limits  postbox.Limits // for all processes together
	History time.Duration  // how long to keep messages that are done; 0: not at all
	// Unprepared turns off prepared statements, see [spool.Prepared].
	Unprepared bool
	// Local is true if handlers may write to this database. If the database goes back, their writes
	// are lost with it. So a message is done only on the server on which it was handled.
	Local bool
	// Feed, if not nil, brings what the log of the database tells, see tail.go.
	Feed *tail.Feed
}

// Identity is how operators and other drainers know this one.
type Identity struct {
	Holder  string // unique to this drainer, not only to its process
	Process string // the process name in failure records
	Work    string // what this drainer does with messages, see [spool.Heartbeat]
}

// Amounts bound what a drainer has in memory and at work.
type Amounts struct {
	PageSize    int // messages to read at once; see pagesInMemory
	InlineBytes int // a larger payload is loaded just before it is handled
	MaxBytes    int // bytes of such payloads in memory at a time; 0: no limit. A payload above the limit is handled alone
	Workers     int // maximum number of batches handled at a time
	BatchSize   int // maximum number of messages in a batch, all of one topic
}

// Times are the pauses and time limits of a drainer.
type Times struct {
	PollMin time.Duration // first pause after a poll that found nothing
	PollMax time.Duration // longest pause after a poll that found nothing
	Lease   time.Duration
	Renew   time.Duration
	Close   time.Duration // how long handlers may continue after Close
}

// Rules say which messages are handled when.
type Rules struct {
	Head      HeadPolicy
	Unordered bool             // messages of one key need not wait for each other
	Exclusive bool             // one drainer at a time holds all lanes
	Gather    *schedule.Gather // tells when a batch is complete; nil: immediately
	// Batches is the stored form of the rule by which messages of a queue are due, see [due.Rule].
	Batches string
}

// Hooks are functions that the drainer calls. All may be nil.
type Hooks struct {
	// Begin waits until a batch may be handled, and returns a function that the caller calls at its
	// end. It is called before the starts of suspects are counted, so that a message that waits for
	// a connection does not count as started.
	Begin func(ctx context.Context) (end func(), err error)
	// Buried runs in the transaction that moves a message to the dead letters, which ctx carries,
	// before anything is written of it. If it returns an error, or takes longer than Renew, that is
	// a setback of this message alone.
	Buried func(ctx context.Context, m *spool.Message, attempts int, cause error) error
	// Circuits returns those of the handler, for operators. They learn when no messages can be
	// read.
	Circuits func() *circuit.Circuits
	// Meter reports what happens.
	Meter *meter.Spool
}
