package tail

import (
	"sync"
	"time"
)

// Message is a message that was inserted into the table of messages by a committed transaction.
type Message struct {
	Transaction   uint32 // the low 32 bits of the transaction's id
	Spool         int64
	ID, CreatedAt int64
	Lane          int
	HasKey        bool
	KeyHash       int64
	Topic         string
	MessageID     string
	Key           string
	// Size is the number of bytes of payload and metadata. If they are too large for the feed, Metadata is nil.
	Size              int
	Payload, Metadata []byte
}

// Limits bound a feed.
type Limits struct {
	Messages int // maximum number of messages
	Inline   int // maximum size of a message that is held with its payload
	Bytes    int // maximum size of all messages with their payloads
}

// Feed holds the messages of one outbox that were read from the log and that the drainer has not taken yet. It is safe
// for concurrent use.
type Feed struct {
	limits  Limits
	changed chan struct{}

	mu       sync.Mutex
	spool    int64  // the outbox; 0 before it is known
	server   string // incarnation of the server whose log is read; empty while no log is read
	gaps     int64
	messages []Message
	bytes    int

	tells   bool      // the log that is read tells each change, see Tells
	changes int64     // those that it has told
	acted   time.Time // when it has told of an action by an operator last
	missed  int64     // how often a drainer has found what it has not told
	heard   time.Time
}

// NewFeed returns an empty feed.
func NewFeed(limits Limits) *Feed {
	return &Feed{limits: limits, changed: make(chan struct{}, 1), gaps: 1}
}

// Changed gets a token when there is something to take, or when the state has changed.
func (f *Feed) Changed() <-chan struct{} { return f.changed }

// Open says which outbox the feed is for. A restored database may know the outbox under another id.
func (f *Feed) Open(spool int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spool != spool {
		f.spool = spool
		f.gap()
	}
}

// Begin says that from now on the log of a server is read. What was committed before may be missing.
func (f *Feed) Begin(server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.server, f.tells = server, false
	f.gap()
	f.signal()
}

// End says that the log is not read any more.
func (f *Feed) End() { f.Begin("") }

// Add adds a message, unless it is of another outbox. If the feed is full, all its messages are dropped, which is a gap.
func (f *Feed) Add(m Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Spool != f.spool {
		return
	}
	m = m.keep(f.limits.Inline)
	size := 0
	if m.Metadata != nil {
		size = m.Size
	}
	if len(f.messages) >= f.limits.Messages || f.bytes+size > f.limits.Bytes {
		f.gap()
	}
	f.messages, f.bytes = append(f.messages, m), f.bytes+size
	f.signal()
}

// gap drops all messages.
func (f *Feed) gap() {
	f.messages, f.bytes = nil, 0
	f.gaps++
}

func (f *Feed) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// State says from which server the log is read, and how many gaps there were. If the number has grown, messages are
// missing that were committed before those that the feed has now.
func (f *Feed) State() (server string, gaps int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server, f.gaps
}

// Take removes and returns all messages, in the order of their commits, with the state that belongs to them.
func (f *Feed) Take() (messages []Message, server string, gaps int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	messages = f.messages
	f.messages, f.bytes = nil, 0
	return messages, f.server, f.gaps
}

// patience is how long the server of the log may be silent. The receiver asks it for a sign of life each second.
const patience = 3 * time.Second

// Tell says that from now on the log tells each change, or that it does so no longer. [Feed.Begin] ends it, too.
func (f *Feed) Tell(tells bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tells != tells {
		f.tells = tells
		f.signal()
	}
}

// Change says that something has changed in an outbox. If spool is 0, an operator has acted, on any outbox.
func (f *Feed) Change(spool int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if spool == 0 {
		f.acted = time.Now()
	}
	if spool == 0 || spool == f.spool {
		f.changes++
		f.signal()
	}
}

// Acted returns when the log has told of an action by an operator last.
func (f *Feed) Acted() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acted
}

// Miss says that a drainer has found something that the log has not told.
func (f *Feed) Miss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed++
}

// Missed returns how often that was.
func (f *Feed) Missed() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missed
}

// Hear says that the server of the log has sent something.
func (f *Feed) Hear(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = now
}

// Heard returns when the server of the log was heard last.
func (f *Feed) Heard() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}

// Tells reports whether the log tells that something has changed beside new messages: a message that waits for its time, an action of an
// operator, a process that joins. The number of changes grows with each of them. It is false, too, when the server has been silent for long.
func (f *Feed) Tells(now time.Time) (changes int64, tells bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes, f.tells && now.Sub(f.heard) < patience
}
