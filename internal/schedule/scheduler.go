package schedule

import (
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Scheduler is the memory of a drainer: what was read, what runs, and what is to be settled. It hands out
// batches so that different keys run side by side and one key's messages one after the other, and topics take
// turns. It is safe for concurrent use.
type Scheduler struct {
	batchSize int
	gather    *Gather

	mu       sync.Mutex
	work     *sync.Cond
	messages map[int64]*Entry // all of them, by id, but for
	outlived map[*Entry]bool  // those that were handed out before the database went back: see package drain, restored.go
	keys     map[int64]*queue // by hash of the key
	topics   map[string]*topicQueue
	turns    []*topicQueue // topics with something to do, the next one first
	finished []*Entry
	room     room
	running  int // messages
	batches  int // that run
	most     int // batches that may run at a time
	lost     int // workers with batches that are stuck, which do not count among those that run: see stuck.go
	spares   int // workers that were added for them, and stay
	paused   bool
	perLane  map[int]int
	// suspectRuns: a message that may bring the process down runs; those like it wait.
	suspectRuns     bool
	suspectsWaiting []*queue
	alarm           *time.Timer // rings when a message that gathers others is due
	deadline        time.Time   // nothing is handed out after it: the leases may be over
	stopped         bool
	// Ahead reads how far the wall clock is ahead, see package drain, standstill.go; aheadBefore is what it was when the leases were renewed.
	Ahead       func(now time.Time) time.Duration
	aheadBefore time.Duration

	// Changed gets a token when there is something to settle, unless another settlement ends soon and takes it along.
	Changed chan struct{}
	awaited bool
}

// Entry is a message in memory.
type Entry struct {
	Message *spool.Message
	queue   *queue
	Outcome spool.Outcome
	running bool // a worker has it
	// alone: it was handed out by itself, and those like it wait until it is settled.
	alone bool
	// dropped: its lane was given up or lost while it was handled, and then its outcome is not written.
	dropped bool
	// Opens says that the key of the message is closed until the message is settled.
	Opens bool
	// Refused says that writing the outcome changed nothing, so the message is read anew. Kept says the same of a message whose row is there and whose lane is
	// held: its outcome is written later.
	Refused, Kept bool
	// Until is the end of the pause after a setback, see package drain, setback.go.
	Until time.Time
	// Held says that the row was locked when the outcome had to be written, and Announced that this was logged: see package drain, locked.go.
	Held, Announced bool
	// Hidden says that reads leave out all messages of the key.
	Hidden bool
	// Begun is when its batch was handed out, if the message is the first of it. stuck is set when the batch has not come back for so long that another worker has taken the place of its own.
	Begun time.Time
	stuck bool
	// Bytes is how much of the scheduler's room the payload takes while the message is handled.
	Bytes int
}

// queue is the messages of one key, oldest first, or one message without a key. It is idle, offered to the
// queue of its head's topic, or running.
type queue struct {
	key     int64
	keyed   bool
	entries []*Entry // those that wait
	offered bool
	running bool
	// blocked: a message did not succeed, and that is not settled yet. What is read of the key meanwhile is
	// left where it is, since the database does not know that it must wait.
	blocked bool
	// closedBy is how many messages keep it closed until they are settled.
	closedBy int
}

// NewEntry returns a message that is in no scheduler.
func NewEntry(m *spool.Message) *Entry { return &Entry{Message: m, queue: &queue{}} }

// keepClosed keeps the message's key closed until the message is settled.
func (e *Entry) keepClosed() {
	if !e.Opens {
		e.Opens = true
		e.queue.closedBy++
	}
}

// topicQueue is the queues whose heads are of one topic.
type topicQueue struct {
	name    string
	ready   []*queue
	running int
	turn    bool // it stands in turns
}

// New returns a scheduler whose batches have so many messages at most. Without gather, a batch is handed out at once.
func New(batchSize int, gather *Gather) *Scheduler {
	s := &Scheduler{
		batchSize: batchSize, gather: gather,
		messages: map[int64]*Entry{}, outlived: map[*Entry]bool{}, keys: map[int64]*queue{}, topics: map[string]*topicQueue{},
		perLane: map[int]int{}, Changed: make(chan struct{}, 1), Ahead: wallAhead,
	}
	s.work = sync.NewCond(&s.mu)
	return s
}

// Load takes in messages and returns those that it left out because their key is blocked.
func (s *Scheduler) Load(messages []*spool.Message) (left []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if s.messages[m.Ref.ID] != nil {
			continue
		}
		q := s.queueOf(m)
		if q.blocked {
			left = append(left, m)
			continue
		}
		e := &Entry{Message: m, queue: q}
		q.insert(e)
		s.messages[m.Ref.ID] = e
		s.perLane[m.Ref.Lane]++
		if !q.offered && !q.running {
			s.offer(q)
		}
	}
	s.wake()
	return left
}

func (s *Scheduler) queueOf(m *spool.Message) *queue {
	if !m.HasKey {
		return &queue{}
	}
	q := s.keys[m.KeyHash]
	if q == nil {
		q = &queue{key: m.KeyHash, keyed: true}
		s.keys[m.KeyHash] = q
	}
	return q
}

// insert keeps the order of ids: a late committer may stand before what was read earlier.
func (q *queue) insert(e *Entry) {
	at := len(q.entries)
	for at > 0 && q.entries[at-1].Message.Ref.ID > e.Message.Ref.ID {
		at--
	}
	q.entries = append(q.entries, nil)
	copy(q.entries[at+1:], q.entries[at:])
	q.entries[at] = e
}

// offer lets a queue wait for the turn of its head's topic.
func (s *Scheduler) offer(q *queue) {
	q.offered = true
	t := s.topic(q.entries[0].Message.Topic)
	t.ready = append(t.ready, q)
	if !t.turn {
		t.turn = true
		s.turns = append(s.turns, t)
	}
}

func (s *Scheduler) topic(name string) *topicQueue {
	t := s.topics[name]
	if t == nil {
		t = &topicQueue{name: name}
		s.topics[name] = t
	}
	return t
}

// wake wakes a worker if there may be something for it. A worker that takes a batch wakes the next worker, so no more are woken
// than find something. A worker that ends a batch looks for the next one itself. Where batches are gathered, all look.
func (s *Scheduler) wake() {
	switch {
	case s.gather != nil:
		s.work.Broadcast()
	case s.something() && !s.busy() && !s.paused:
		s.work.Signal()
	}
}

// Take waits for a batch. It returns nil after stop.
func (s *Scheduler) Take() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped {
		if s.paused || s.busy() || !s.something() {
			s.work.Wait()
			continue
		}
		if s.leaseOver() {
			s.Signal() // the drainer renews
			s.work.Wait()
			continue
		}
		if s.gather != nil {
			if batch := s.gathered(time.Now()); len(batch) > 0 {
				return batch
			}
			s.work.Wait()
			continue
		}
		if batch := s.pick(); len(batch) > 0 {
			s.wake()
			return batch
		}
	}
	return nil
}

// TryTake returns the batch that [Scheduler.Take] would return now, or nil where it would wait. Where batches are gathered, it returns nil.
func (s *Scheduler) TryTake() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.gather == nil && !s.stopped && !s.paused && !s.busy() && s.something() && !s.leaseOver() {
		if batch := s.pick(); len(batch) > 0 {
			return batch
		}
	}
	return nil
}

// something says whether there may be something to hand out.
func (s *Scheduler) something() bool { return len(s.turns) > 0 || s.largeFits() }

// pick takes a batch: large messages that waited for room, and the topics' turns, one after the other.
func (s *Scheduler) pick() (batch []*Entry) {
	if s.room.turn = !s.room.turn; s.room.turn || len(s.turns) == 0 {
		batch = s.largeBatch()
	}
	if len(batch) == 0 && len(s.turns) > 0 {
		batch = s.batch()
	}
	return batch
}

// MaxBatchBytes bounds the payloads that a batch has in memory, if it is more than one message.
const MaxBatchBytes = spool.MaxAppendBytes

// goesWith says whether a message may be handled together with a batch of this size. One that had a setback is handled by itself: should
// the reason be its own, it holds up no others.
func goesWith(batch []*Entry, e *Entry, size int) bool {
	return !batch[0].Message.Apart && !e.Message.Apart && size+e.Message.Size <= MaxBatchBytes
}

// batch takes messages of the topic whose turn it is.
func (s *Scheduler) batch() []*Entry {
	t := s.turns[0]
	var batch []*Entry
	size := 0
	for len(t.ready) > 0 && len(batch) < s.batchSize {
		q := t.ready[0]
		if len(batch) > 0 && len(q.entries) > 0 && !goesWith(batch, q.entries[0], size) {
			break
		}
		if len(q.entries) > 0 && !s.fits(batch, q.entries[0]) {
			t.ready = t.ready[1:]
			s.room.waiting = append(s.room.waiting, q)
			continue
		}
		if len(q.entries) > 0 && q.entries[0].Message.Suspect() && q.entries[0].Message.Topic == t.name {
			if batch == nil {
				batch = s.suspectBatch(t)
			}
			if batch != nil {
				break
			}
			continue
		}
		t.ready = t.ready[1:]
		q.offered = false
		if len(q.entries) == 0 { // its lane was lost
			s.close(q)
			continue
		}
		for len(q.entries) > 0 && len(batch) < s.batchSize && q.entries[0].Message.Topic == t.name && !q.entries[0].Message.Suspect() {
			if len(batch) > 0 && !goesWith(batch, q.entries[0], size) || !s.fits(batch, q.entries[0]) {
				break
			}
			batch, size = append(batch, q.entries[0]), size+q.entries[0].Message.Size
			q.entries = q.entries[1:]
			q.running = true
		}
		if !q.running { // a late committer of another topic has become its head
			s.offer(q)
		}
	}
	s.begin(t, batch)
	return batch
}

// begin accounts for a batch of the topic whose turn it was, which is over.
func (s *Scheduler) begin(t *topicQueue, batch []*Entry) {
	s.turns = slices.Delete(s.turns, 0, 1) // there are few topics, and the rest of a slice would have no room for the next turn
	if len(t.ready) > 0 {
		s.turns = append(s.turns, t)
	} else {
		t.ready, t.turn = nil, false
	}
	s.count(t, batch)
}

// count accounts for a batch of the topic that is handed out.
func (s *Scheduler) count(t *topicQueue, batch []*Entry) {
	if len(batch) > 0 {
		s.batches++
		batch[0].Begun = time.Now()
	}
	s.room.take(batch)
	s.running += len(batch)
	t.running += len(batch)
	for _, e := range batch {
		e.running = true
	}
	s.forget(t)
}
