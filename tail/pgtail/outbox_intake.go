package pgtail

import (
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
)

const (
	// portionMessages and portionBytes bound, except for the last piece, what is stored together, and so a transaction.
	portionMessages = 1000
	portionBytes    = 4 << 20
	// intakePortions bounds what is received and not stored. Then the receiver waits.
	intakePortions = 4
)

// received is a message with the outbox that it belongs to.
type received struct {
	outbox string
	lanes  int
	draft  spool.Draft
	direct bool // it was published without a row
}

// portion is a transaction of the log with messages, or a part of one.
type portion struct {
	commit

	transaction uint32
	messages    []received
	bytes       int
	end         uint64 // of the commit; 0 if the transaction goes on
	part        int    // the number of messages of the transaction up to here
	marked      bool   // it has a mark, see [dialect.LogMark]
}

// needsRows reports whether there is a message that was not published.
func (p portion) needsRows() bool {
	return slices.ContainsFunc(p.messages, func(m received) bool { return !m.direct })
}

// commit is the end of a transaction in the log.
type commit struct {
	final uint64 // where it begins
	at    time.Time
}

// intake holds what was received from the log and is not stored yet, in the order of commits. The receiver adds to it,
// and the keeper takes from it.
type intake struct {
	changed chan struct{} // gets a token when there is something to store
	room    chan struct{} // gets a token when something was taken
	ended   chan struct{} // is closed when nothing is added any more, and what there is should be stored

	// The fields of the receiver.
	from     dialect.LogPosition // where it begins
	skipping bool                // the transaction was stored before
	skip     int                 // so many messages of the next transaction were stored before
	current  portion

	mu        sync.Mutex
	portions  []portion
	messages  int
	bytes     int
	passed    uint64 // everything up to here was added
	marked    uint64 // the end of the last transaction with a mark
	confirmed uint64 // the server need not keep the log up to here
}

func newIntake(from dialect.LogPosition) *intake {
	return &intake{changed: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{}), from: from, skip: from.Part}
}

// begin begins a transaction with this commit.
func (i *intake) begin(c commit) {
	i.skipping = c.final < uint64(i.from.Position) //nolint:gosec // a position
	i.current = portion{commit: c}
}

// add adds messages of the transaction that has begun.
func (i *intake) add(transaction uint32, emitted tail.Emitted) {
	if i.skipping {
		return
	}
	i.current.transaction = transaction
	i.current.marked = i.current.marked || len(emitted.Drafts) == 0
	for _, draft := range emitted.Drafts {
		i.current.part++
		if i.skip > 0 {
			i.skip--
			continue
		}
		i.current.messages = append(i.current.messages, received{outbox: emitted.Outbox, lanes: emitted.Lanes, draft: draft})
		i.current.bytes += len(draft.Payload)
		if len(i.current.messages) >= portionMessages || i.current.bytes >= portionBytes {
			i.put()
		}
	}
}

// end ends the transaction. A next one was not stored in parts.
func (i *intake) end(end uint64) {
	if !i.skipping && i.current.part > 0 {
		i.current.end, i.skip = end, 0
		i.put()
	}
	if i.current.marked {
		i.mark(end)
	}
	i.passedBy(end)
}

// mark notes that the position after a mark is to be stored.
func (i *intake) mark(end uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.marked = end
}

// put makes the current portion one that can be stored, and begins the next one of the transaction.
func (i *intake) put() {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.current
	i.portions, i.messages, i.bytes = append(i.portions, p), i.messages+len(p.messages), i.bytes+p.bytes
	i.current = portion{commit: p.commit, transaction: p.transaction, part: p.part, marked: p.marked}
	signal(i.changed)
}

// passedBy notes that there are no more messages up to a position.
func (i *intake) passedBy(end uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.passed = max(i.passed, end)
}

func (i *intake) full() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.messages >= intakePortions*portionMessages || i.bytes >= intakePortions*portionBytes
}

// waiting returns the number of portions that are to be stored.
func (i *intake) waiting() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.portions)
}

// due returns up to where there are no messages, and whether that is to be stored: there is a mark after the stored position, or much log. A mark may be noted
// before its end was passed. A place before the stored position is never due: messages would be published or stored again.
func (i *intake) due(stored int64) (passed uint64, is bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	from := uint64(stored) //nolint:gosec // a position
	return i.passed, len(i.portions) == 0 && i.passed > from && (i.marked > from || i.passed >= from+passedMost)
}

// take removes and returns portions to be stored together. If these are all that there are, passed is the position up to
// which there is nothing else.
func (i *intake) take() (portions []portion, passed uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, messages, bytes := 0, 0, 0
	for n < len(i.portions) && messages < portionMessages && bytes < portionBytes {
		messages, bytes = messages+len(i.portions[n].messages), bytes+i.portions[n].bytes
		n++
	}
	portions, i.portions = i.portions[:n:n], i.portions[n:]
	i.messages, i.bytes = i.messages-messages, i.bytes-bytes
	if len(i.portions) == 0 {
		i.portions, passed = nil, i.passed
	} else {
		signal(i.changed)
	}
	signal(i.room)
	return portions, passed
}

// confirm notes that the server need not keep the log up to a position.
func (i *intake) confirm(position uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.confirmed = position
}

// confirmable returns the position up to which the server need not keep the log.
func (i *intake) confirmable() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.confirmed
}

// signal puts a token into a channel unless it has one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
