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
	Lane        int    // of that message
}

// AnyLane stands for all lanes: that of a change which no lane has.
const AnyLane = -1

// place is where a transaction has changed something.
type place struct {
	transaction uint32
	lane        int
}

// Feed brings what a log tells to the drainer of one outbox. It is safe for concurrent use.
type Feed struct {
	changed chan struct{}

	mu       sync.Mutex
	spool    int64             // the outbox; 0 before it is known
	seen     map[int]*Snapshot // of the last read of each lane, and of AnyLane
	pending  []place           // what no read has seen, in the order of the commits
	news     []int             // the lanes of what was told since the last call of News
	messages int               // told since then

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
	f.spool, f.seen, f.pending, f.news = spool, nil, nil, nil
}

// Begin says that a log is read from now on, or none any more. It tells each change after
// [Feed.Tell].
func (f *Feed) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending, f.seen, f.news = nil, nil, nil
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
	at := place{c.Transaction, AnyLane}
	if c.Message {
		at.lane = c.Lane
	}
	if n := len(f.pending); n > 0 && f.pending[n-1] == at || f.sees(at) {
		return
	}
	f.pending = append(f.pending[max(len(f.pending)-most+1, 0):], at)
	if !slices.Contains(f.news, at.lane) {
		f.news = append(f.news, at.lane)
	}
	f.signal()
}

// sees reports whether the last read of a place has seen it. A lane that others hold has none, and
// is seen with the whole outbox.
func (f *Feed) sees(at place) bool {
	seen, some := f.seen[at.lane]
	if !some {
		seen, some = f.seen[AnyLane]
	}
	return some && at.transaction != 0 && seen.Sees(at.transaction)
}

// News returns the lanes in which transactions have changed something since the last call that no
// read has seen. messages is how many the log has told since then.
func (f *Feed) News() (lanes []int, messages int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lanes, messages = f.news, f.messages
	f.news, f.messages = nil, 0
	return lanes, messages
}

// Read takes in what a read of these lanes has seen; all says that it was one of the whole outbox.
// It returns how many changes it was the first to see, and how many of there it has not seen.
func (f *Feed) Read(seen *Snapshot, lanes []int, all bool) (first, left int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil || all {
		f.seen = map[int]*Snapshot{}
	}
	if all {
		f.seen[AnyLane] = seen
	}
	for _, lane := range lanes {
		f.seen[lane] = seen
	}
	f.pending = slices.DeleteFunc(f.pending, func(at place) bool {
		switch {
		case f.sees(at), all && at.transaction == 0:
			first++
			return true
		case all, slices.Contains(lanes, at.lane):
			left++
		}
		return false
	})
	return first, left
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
