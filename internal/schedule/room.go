package schedule

// room limits the memory for payloads that are loaded one by one. A message that finds no room is
// set aside, and smaller messages, which were read with their page, continue. Messages that were
// set aside run in their order, so others do not overtake a large message for ever. A message that
// is larger than the limit runs when no other message takes room. The scheduler's mutex guards it.
type room struct {
	most    int // limit in bytes; 0 means no limit
	taken   int
	waiting []*queue // queues whose heads wait for room
	turn    bool     // the waiting queues come next
}

// has reports whether there is room for this number of bytes.
func (r *room) has(bytes int) bool {
	return bytes == 0 || r.most == 0 || r.taken == 0 || r.taken+bytes <= r.most
}

// take reserves the room for a batch.
func (r *room) take(batch []*Entry) {
	for _, e := range batch {
		e.Bytes = e.Message.ToLoad()
		r.taken += e.Bytes
	}
}

// leave frees the room of a batch.
func (r *room) leave(batch []*Entry) {
	for _, e := range batch {
		r.taken -= e.Bytes
	}
}

// part returns as much of a batch as can ever fit into the room, and at least one message.
func (r *room) part(batch []*Entry) []*Entry {
	bytes := 0
	for i, e := range batch {
		bytes += e.Message.ToLoad()
		if i > 0 && r.most > 0 && bytes > r.most {
			return batch[:i]
		}
	}
	return batch
}

// weight returns the bytes that handling a batch loads.
func weight(batch []*Entry) int {
	bytes := 0
	for _, e := range batch {
		bytes += e.Message.ToLoad()
	}
	return bytes
}

// fits reports whether there is room for a message in a batch, or in the next one if the batch is
// empty.
func (s *Scheduler) fits(batch []*Entry, e *Entry) bool {
	bytes := e.Message.ToLoad()
	if bytes == 0 || s.room.most == 0 {
		return true
	}
	if len(s.room.waiting) > 0 { // the waiting queues come first
		return false
	}
	before := weight(batch)
	return s.room.taken+before == 0 || s.room.taken+before+bytes <= s.room.most
}

// largeFits reports whether there is room for the first message that was set aside.
func (s *Scheduler) largeFits() bool {
	for len(s.room.waiting) > 0 {
		q := s.room.waiting[0]
		switch {
		case len(q.entries) == 0: // its lane was lost
			s.takeAside()
			s.close(q)
		case q.entries[0].Message.ToLoad() == 0: // a message that committed late has become its head
			s.takeAside()
			s.offer(q)
		case !s.admitsLarge(q): // it waits elsewhere
		default:
			return s.room.has(q.entries[0].Message.ToLoad())
		}
	}
	return false
}

// takeAside removes and returns the first queue that was set aside.
func (s *Scheduler) takeAside() *queue {
	q := s.room.waiting[0]
	s.room.waiting[0] = nil
	s.room.waiting = s.room.waiting[1:]
	q.offered = false
	return q
}

// largeBatch takes messages that were set aside: of one topic, one of each key, as many as fit into
// the room.
func (s *Scheduler) largeBatch() (batch []*Entry) {
	var topic string
	most := s.batchSize
	for size := 0; len(batch) < most && s.largeFits(); {
		head := s.room.waiting[0].entries[0].Message
		if len(batch) > 0 && (head.Topic != topic || head.Suspect() || !goesWith(batch, s.room.waiting[0].entries[0], size) || s.room.taken+weight(batch)+head.Size > s.room.most) {
			break
		}
		if len(batch) == 0 {
			if most = s.admitted(head.Topic); most == 0 {
				return nil
			}
		}
		q := s.takeAside()
		if head.Suspect() && s.suspectRuns {
			q.offered = true
			s.suspectsWaiting = append(s.suspectsWaiting, q)
			continue
		}
		topic, size = head.Topic, size+head.Size
		q.running = true
		if head.Suspect() {
			s.suspectRuns = true
			batch = q.alone()
			break
		}
		batch = append(batch, q.entries[0])
		q.entries = q.entries[1:]
	}
	if len(batch) > 0 {
		s.count(s.topic(topic), batch)
	}
	return batch
}
