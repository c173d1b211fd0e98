package drain

import (
	"context"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Handler handles a batch of messages of one topic and returns one outcome for each, in the same order.
// Messages of one key stand in the batch in their order; after one that did not succeed, the later ones of its
// key must not be handled and have the verdict [spool.Postpone].
type Handler interface {
	Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome
	// Excluded lists the topics for which nothing shall be read now. A handler that postpones a message excludes its
	// topic, or it comes again at once, and calls [Drainer.Rescan] when that is over.
	Excluded() []string
}

// HeadPolicy says what becomes of a key whose oldest message keeps failing. While that has attempts left, its key
// waits in any case.
type HeadPolicy int

const (
	// HeadSkip moves the message to the dead letters, and its key goes on.
	HeadSkip HeadPolicy = iota
	// HeadBlock tries it for ever, and its key waits. A permanent error moves it to the dead letters.
	HeadBlock
	// HeadPark leaves it where it is, and its key waits, until an operator decides.
	HeadPark
)

const (
	// LeaseRenewals is how often a lease is renewed within its time.
	LeaseRenewals = 3
	// InlineBytes is the largest payload that is read together with others, so that a page has a bounded size.
	InlineBytes = 16 << 10
	// pagesInMemory is how many a drainer has at most: one is read, one handled, one removed.
	pagesInMemory = 3
)

// Config bounds a drainer. Its owner has set and checked every field; what operators have stored for the spool, its
// [spool.Settings], goes before it.
type Config struct {
	Holder      string        // unique to this drainer, not only to its process
	Process     string        // what failure records name
	PageSize    int           // messages to read at once; see pagesInMemory
	InlineBytes int           // a larger payload is loaded just before it is handled
	MaxBytes    int           // payloads loaded that way, of all that is handled at a time; 0: no bound. A larger one goes alone
	Workers     int           // batches handled at a time; not more than so many
	BatchSize   int           // messages of one topic in a batch, at most
	PollMin     time.Duration // pause after a look that found nothing, at first
	PollMax     time.Duration // and at last
	Lease       time.Duration
	Renew       time.Duration
	Retry       postbox.RetryProfile
	Head        HeadPolicy
	Unordered   bool             // messages of one key need not wait for each other
	Exclusive   bool             // one drainer at a time has all lanes
	Gather      *schedule.Gather // when a batch is handed out; nil: at once
	// Unprepared says that no statement is prepared, see [spool.Prepared].
	Unprepared bool
	// Local says that handlers may write to this database. Their writes are lost with it, so a message is done only on the server on which it was handled.
	Local   bool
	History time.Duration // how long messages that are done are kept; 0: not at all
	// Begin, if set, waits until a batch may be handled, and returns a function that ends that. It is called before the starts of
	// suspects are counted: a message that waits for a connection is none that has been started.
	Begin func(ctx context.Context) (end func(), err error)
	// Buried, if set, runs in the transaction that moves a message to the dead letters, which ctx carries. Its error is a setback of that message
	// alone, and so is that it takes longer than Renew.
	Buried func(ctx context.Context, m *spool.Message, attempts int, cause error) error
	Close  time.Duration // how long handlers may go on after Close
	// Observer, if set, hears what becomes of messages.
	Observer Observer
}
