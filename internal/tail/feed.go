package tail

import (
	"slices"
	"sync"
	"time"
)

// Change is what a committed transaction has done for an outbox.
type Change struct {
	Transaction uint32 // the low 32 bits of its id, or 0 for one that everybody sees
	Spool       int64  // the outbox; 0 for all, since an operator has acted
	Message     bool   // it has stored a message that is ready
}

// Feed brings what a log tells to the drainer of one outbox. It is safe for concurrent use.
type Feed struct {
	changed chan struct{}

	mu       sync.Mutex
	spool    int64     // the outbox; 0 before it is known
	seen     *Snapshot // of the last read
	pending  []uint32  // transactions that it has not seen, in the order of their commits
	news     bool      // there are some since the last call of News
	messages int       // told since then

	tells  bool      // the log that is read tells each change
	acted  time.Time // when it has told of an action by an operator last
	missed int64     // how often a drainer has found what it has not told
	heard  time.Time
}

// most is the number of transactions that a feed holds. Of more it drops the oldest, which the next
// read sees in all likelihood.
const most = 10_000

// NewFeed returns an empty feed.
func NewFeed() *Feed { return &Feed{changed: make(chan struct{}, 1)} }

// Changed gets a token when there is news, or when the log begins or ceases to tell. Without a feed
// there is no channel.
func (f *Feed) Changed() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.changed
}

// Open says which outbox the feed is for. A restored database may know the outbox under another id.
func (f *Feed) Open(spool int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spool, f.seen, f.pending = spool, nil, nil
}

// Begin says that a log is read from now on, or none any more. It tells each change after
// [Feed.Tell].
func (f *Feed) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending, f.seen = nil, nil
	f.tell(false)
}

// Add adds a change, unless it is of another outbox.
func (f *Feed) Add(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Spool != 0 && c.Spool != f.spool {
		return
	}
	if c.Spool == 0 {
		f.acted = time.Now()
	}
	if c.Message {
		f.messages++
	}
	if n := len(f.pending); n > 0 && f.pending[n-1] == c.Transaction || f.sees(c.Transaction) {
		return
	}
	f.pending = append(f.pending[max(len(f.pending)-most+1, 0):], c.Transaction)
	f.news = true
	f.signal()
}

func (f *Feed) sees(transaction uint32) bool {
	return f.seen != nil && transaction != 0 && f.seen.Sees(transaction)
}

// News reports whether there is a transaction since the last call that no read has seen. messages
// is how many the log has told since then.
func (f *Feed) News() (news bool, messages int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	news, messages = f.news, f.messages
	f.news, f.messages = false, 0
	return news, messages
}

// Read takes in what a read of the outbox has seen, and returns of how many transactions it was the
// first, and how many are left.
func (f *Feed) Read(seen *Snapshot) (first, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.pending)
	f.seen = seen
	f.pending = slices.DeleteFunc(f.pending, func(one uint32) bool { return one == 0 || f.sees(one) })
	return before - len(f.pending), len(f.pending)
}

// Pending reports whether there is a transaction that no read has seen.
func (f *Feed) Pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending) > 0
}

func (f *Feed) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// patience is how long the server of the log may be silent. The receiver asks it for a sign of life
// each second.
const patience = 3 * time.Second

// Tell says that from now on the log tells each change, or that it does so no longer.
func (f *Feed) Tell(tells bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell(tells)
}

func (f *Feed) tell(tells bool) {
	if f.tells != tells {
		f.tells = tells
		f.signal()
	}
}

// Tells reports whether the log tells each change: a message, an action of an operator, a process
// that joins. It is false, too, when the server has been silent for long.
func (f *Feed) Tells(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tells && now.Sub(f.heard) < patience
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
