package schedule

import (
	"slices"
	"sync"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Scheduler is the memory of a drainer: the messages that were read, that are running, and that
// must be settled. It hands out batches so that different keys run concurrently, the messages of
// one key run one after the other, and topics take turns. It is safe for concurrent use.
type Scheduler struct {
	// Ahead reads how far the wall clock is ahead, see package drain, standstill.go.
	Ahead func(now time.Time) time.Duration

	batchSize int
	batching
	mu   sync.Mutex
	work *sync.Cond
	memory
	topics   topics
	payloads payloads
	handed   handed
	hung     hung
	suspects suspects
	permission
	results
	allowance
}

// memory is what was read and is not settled.
type memory struct {
	messages map[int64]*Entry // by id, except those of outlived
	outlived map[*Entry]bool  // were handed out before the database went back: see package drain, restored.go
	keys     map[orderOf]*queue
	perLane  map[int]int
}

// permission says whether messages may be handed out.
type permission struct {
	paused   bool
	stopped  bool
	ended    chan struct{} // closed by Stop
	deadline deadline
}

// results are the messages that must be settled.
type results struct {
	// Changed gets a token when there is one, unless a running settlement ends soon and the next
	// one takes the message along.
	Changed  chan struct{}
	finished []*Entry
	awaited  bool
}

// allowance is what the limits allow.
type allowance struct {
	limits      *limits // nil without limits
	slotsUnsure bool    // slots may name this process that it does not hold
	repeats     int     // parts of batches that wait to be handed out once more, see repeat.go
}

// handed is what was handed out.
type handed struct {
	messages, batches int // that are running
	most              int // batches that may run
}

// Entry is a message in memory.
type Entry struct {
	Message *spool.Message
	queue   *queue
	Outcome spool.Outcome
	running bool // a worker is handling it
	// alone: the message was handed out by itself, and other suspects wait until it is settled.
	alone bool
	// dropped: the lane of the message was given up or lost while it was handled, so its outcome is
	// not written.
	dropped bool
	// ClosesKey is set if the key of the message is closed until the message is settled.
	ClosesKey bool
	// Unchanged is set if writing the outcome changed nothing, so the message is read again.
	Unchanged bool
	Setback
	// Begun is when the batch was handed out, and batch are its messages; both are set for the
	// first message of a batch. hung is set if the batch has not come back for so long that
	// another worker has replaced the one that runs it.
	Begun time.Time
	batch []*Entry
	hung  bool
	// Bytes is how much of the scheduler's room the message takes while it is handled.
	Bytes int
}

// Setback is why the outcome of a message could not be written: see package drain, setback.go.
type Setback struct {
	Until time.Time // the end of the pause
	// Locked is set if the row was locked, and LockLogged if this was logged: see package drain,
	// locked.go.
	Locked, LockLogged bool
	// Hidden is set if reads leave out all messages of the key.
	Hidden bool
}

// orderOf says which messages are in order with each other: those of a key, and in a topic with a
// limit those of the key there. Keys are equal if their texts are: two texts with the same hash can
// be made.
type orderOf struct{ topic, key string }

// queue holds the messages of one key, oldest first, or one message without a key. It is idle,
// offered to the queue of its head's topic, or running.
type queue struct {
	key     orderOf
	keyed   bool
	entries []*Entry // waiting messages
	offered bool
	running bool
	// blocked: a message did not succeed, and is not settled yet. Messages of the key that are read
	// meanwhile are left out, since the database does not know yet that they must wait.
	blocked bool
	// closedBy is the number of messages that keep the key closed until they are settled.
	closedBy int
	// leftOut is the first message of the key that a read has found meanwhile; its id is 0 if none
	// has.
	leftOut dialect.Ref
}

// NewEntry returns an entry that belongs to no scheduler.
func NewEntry(m *spool.Message) *Entry { return &Entry{Message: m, queue: &queue{}} }

// keepClosed keeps the message's key closed until the message is settled.
func (e *Entry) keepClosed() {
	if !e.ClosesKey {
		e.ClosesKey = true
		e.queue.closedBy++
	}
}

// topics take turns.
type topics struct {
	named map[string]*topicQueue
	turns []*topicQueue // topics with something to do, the next one first
}

// topicQueue holds the queues whose heads belong to one topic.
type topicQueue struct {
	name    string
	ready   []*queue
	running int
	turn    bool // it is in turns
	atGate  bool // it waits for its limit instead
}

// New returns a scheduler whose batches have at most batchSize messages. Without gather, a batch is
// handed out immediately.
func New(batchSize int, gather *Gather) *Scheduler {
	s := &Scheduler{
		Ahead: wallAhead, batchSize: batchSize, batching: batching{gather: gather},
		memory: memory{messages: map[int64]*Entry{}, outlived: map[*Entry]bool{}, keys: map[orderOf]*queue{}, perLane: map[int]int{}},
		topics: topics{named: map[string]*topicQueue{}}, hung: hung{entries: map[*Entry]bool{}},
		permission: permission{ended: make(chan struct{})}, results: results{Changed: make(chan struct{}, 1)},
	}
	s.work = sync.NewCond(&s.mu)
	return s
}

// Load adds messages, and returns those that it left out: because they are in memory, as one is
// whose failure has just been stored, or because their key is blocked. Settled tells when these
// must be read again.
func (s *Scheduler) Load(messages []*spool.Message) (leftOut []*spool.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(messages)
}

func (s *Scheduler) load(messages []*spool.Message) (leftOut []*spool.Message) {
	for _, m := range messages {
		if s.messages[m.Ref.ID] != nil {
			leftOut = append(leftOut, m)
			continue
		}
		q := s.queueOf(m)
		if q.blocked {
			q.noteLeftOut(m.Ref)
			leftOut = append(leftOut, m)
			continue
		}
		e := &Entry{Message: m, queue: q}
		q.insert(e)
		s.messages[m.Ref.ID] = e
		s.perLane[m.Ref.Lane]++
		if s.limits != nil {
			s.enter(e)
		}
		if !q.offered && !q.running {
			s.offer(q)
		}
	}
	s.wake()
	return leftOut
}

func (s *Scheduler) queueOf(m *spool.Message) *queue {
	if !m.HasKey {
		return &queue{}
	}
	key := orderOf{key: m.Key}
	if s.limits != nil {
		key = s.limits.keyOf(m)
	}
	q := s.keys[key]
	if q == nil {
		q = &queue{key: key, keyed: true}
		s.keys[key] = q
	}
	return q
}

// noteLeftOut notes that a message of the key was left out.
func (q *queue) noteLeftOut(ref dialect.Ref) {
	if ref.ID != 0 && (q.leftOut.ID == 0 || ref.ID < q.leftOut.ID) {
		q.leftOut = ref
	}
}

// insert keeps the order of ids: a message that committed late may belong before messages that were
// read earlier.
func (q *queue) insert(e *Entry) {
	at := len(q.entries)
	for at > 0 && q.entries[at-1].Message.Ref.ID > e.Message.Ref.ID {
		at--
	}
	q.entries = append(q.entries, nil)
	copy(q.entries[at+1:], q.entries[at:])
	q.entries[at] = e
}

// offer makes a queue wait for the turn of its head's topic.
func (s *Scheduler) offer(q *queue) {
	q.offered = true
	t := s.topic(q.entries[0].Message.Topic)
	t.ready = append(t.ready, q)
	s.takeTurn(t)
}

// takeTurn lets a topic take turns, unless it waits for its limit.
func (s *Scheduler) takeTurn(t *topicQueue) {
	if !t.turn && !t.atGate && len(t.ready) > 0 {
		t.turn = true
		s.topics.turns = append(s.topics.turns, t)
	}
}

func (s *Scheduler) topic(name string) *topicQueue {
	t := s.topics.named[name]
	if t == nil {
		t = &topicQueue{name: name}
		s.topics.named[name] = t
	}
	return t
}

// wake wakes a worker if there may be a batch for it. A worker that takes a batch wakes the next
// worker, so only as many wake as find work. A worker that ends a batch looks for the next one
// itself. If batches are gathered, all workers wake.
func (s *Scheduler) wake() {
	switch {
	case s.gather != nil:
		s.work.Broadcast()
	case s.something() && !s.busy() && !s.paused:
		s.work.Signal()
	}
}

// Take waits for a batch. It returns nil after Stop.
func (s *Scheduler) Take() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopped {
		if s.paused || s.busy() || s.limited() || !s.something() {
			s.work.Wait()
			continue
		}
		if s.leaseOver() {
			s.Signal() // makes the drainer renew the leases
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

// TryTake returns the batch that [Scheduler.Take] would return now, or nil if Take would wait. If
// batches are gathered, it returns nil.
func (s *Scheduler) TryTake() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.gather == nil && !s.stopped && !s.paused && !s.busy() && !s.limited() && s.something() && !s.leaseOver() {
		if batch := s.pick(); len(batch) > 0 {
			return batch
		}
	}
	return nil
}

// something reports whether there may be a message to hand out.
func (s *Scheduler) something() bool { return len(s.topics.turns) > 0 || s.largeFits() }

// pick takes a batch, alternately of large messages that waited for room and of the next topic.
func (s *Scheduler) pick() (batch []*Entry) {
	if s.payloads.turn = !s.payloads.turn; s.payloads.turn || len(s.topics.turns) == 0 {
		batch = s.largeBatch()
	}
	if len(batch) == 0 && len(s.topics.turns) > 0 {
		batch = s.batch()
	}
	return batch
}

// MaxBatchBytes limits the payloads that a batch of more than one message has in memory.
const MaxBatchBytes = spool.MaxAppendBytes

// goesWith reports whether a message may be handled together with a batch of this size. A message
// that had a setback is handled by itself: if it caused the setback, it does not hold up others.
func goesWith(batch []*Entry, e *Entry, size int) bool {
	return !batch[0].Message.Apart && !e.Message.Apart && size+e.Message.Size <= MaxBatchBytes
}

// batch takes messages of the topic whose turn it is.
func (s *Scheduler) batch() []*Entry {
	t := s.topics.turns[0]
	most := s.admitted(t.name)
	if most == 0 {
		return nil
	}
	var batch []*Entry
	size := 0
	for len(t.ready) > 0 && len(batch) < most {
		q := t.ready[0]
		if len(batch) > 0 && len(q.entries) > 0 && !goesWith(batch, q.entries[0], size) {
			break
		}
		if len(q.entries) > 0 && !s.fits(batch, q.entries[0]) {
			t.ready = t.ready[1:]
			s.payloads.waiting = append(s.payloads.waiting, q)
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
			s.forgetKey(q)
			continue
		}
		for len(q.entries) > 0 && len(batch) < most && q.entries[0].Message.Topic == t.name && !q.entries[0].Message.Suspect() {
			if len(batch) > 0 && !goesWith(batch, q.entries[0], size) || !s.fits(batch, q.entries[0]) {
				break
			}
			batch, size = append(batch, q.entries[0]), size+q.entries[0].Message.Size
			q.entries = q.entries[1:]
			q.running = true
		}
		if !q.running { // a message of another topic that committed late has become its head
			s.offer(q)
		}
	}
	s.begin(t, batch)
	return batch
}

// begin ends the turn of a topic and counts its batch.
func (s *Scheduler) begin(t *topicQueue, batch []*Entry) {
	s.topics.turns = slices.Delete(s.topics.turns, 0, 1) // there are few topics, and reslicing would leave no capacity for the next turn
	if len(t.ready) > 0 {
		s.topics.turns = append(s.topics.turns, t)
	} else {
		t.ready, t.turn = nil, false
	}
	s.count(t, batch)
}

// count updates the counters for a batch of the topic that is handed out.
func (s *Scheduler) count(t *topicQueue, batch []*Entry) {
	if len(batch) > 0 {
		s.handed.batches++
		batch[0].Begun, batch[0].batch = time.Now(), batch
	}
	s.payloads.take(batch)
	s.handed.messages += len(batch)
	t.running += len(batch)
	for _, e := range batch {
		e.running = true
	}
	s.takeLimits(t.name, batch)
	s.forget(t)
}
