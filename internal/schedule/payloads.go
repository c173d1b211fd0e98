package schedule

// payloads limit the memory for payloads that are loaded one by one. A message that finds no room
// is set aside, and smaller messages, which were read with their page, continue. Messages that were
// set aside run in their order, so others do not overtake a large message for ever. A message that
// is larger than the limit runs when no other message takes room. The scheduler's mutex guards it.
type payloads struct {
	most    int // limit in bytes; 0 means no limit
	taken   int
	waiting []*queue // queues whose heads wait for room
	turn    bool     // the waiting queues come next
}

// has reports whether there is room for this number of bytes.
func (p *payloads) has(bytes int) bool {
	return bytes == 0 || p.most == 0 || p.taken == 0 || p.taken+bytes <= p.most
}

// take reserves the room for a batch.
func (p *payloads) take(batch []*Entry) {
	for _, e := range batch {
		e.Bytes = e.Message.ToLoad()
		p.taken += e.Bytes
	}
}

// release frees the room of a batch.
func (p *payloads) release(batch []*Entry) {
	for _, e := range batch {
		p.taken -= e.Bytes
	}
}

// part returns as much of a batch as can ever fit into the room, and at least one message.
func (p *payloads) part(batch []*Entry) []*Entry {
	bytes := 0
	for i, e := range batch {
		bytes += e.Message.ToLoad()
		if i > 0 && p.most > 0 && bytes > p.most {
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
	if bytes == 0 || s.payloads.most == 0 {
		return true
	}
	if len(s.payloads.waiting) > 0 { // the waiting queues come first
		return false
	}
	before := weight(batch)
	return s.payloads.taken+before == 0 || s.payloads.taken+before+bytes <= s.payloads.most
}

// largeFits reports whether there is room for the first message that was set aside.
func (s *Scheduler) largeFits() bool {
	for len(s.payloads.waiting) > 0 {
		q := s.payloads.waiting[0]
		switch {
		case len(q.entries) == 0: // its lane was lost
			s.takeAside()
			s.forgetKey(q)
		case q.entries[0].Message.ToLoad() == 0: // a message that committed late has become its head
			s.takeAside()
			s.offer(q)
		case !s.admitsLarge(q): // it waits elsewhere
		default:
			return s.payloads.has(q.entries[0].Message.ToLoad())
		}
	}
	return false
}

// takeAside removes and returns the first queue that was set aside.
func (s *Scheduler) takeAside() *queue {
	q := s.payloads.waiting[0]
	s.payloads.waiting[0] = nil
	s.payloads.waiting = s.payloads.waiting[1:]
	q.offered = false
	return q
}

// largeBatch takes messages that were set aside: of one topic, one of each key, as many as fit into
// the room.
func (s *Scheduler) largeBatch() (batch []*Entry) {
	var topic string
	most := s.batchSize
	for size := 0; len(batch) < most && s.largeFits(); {
		head := s.payloads.waiting[0].entries[0].Message
		if len(batch) > 0 && (head.Topic != topic || head.Suspect() || !goesWith(batch, s.payloads.waiting[0].entries[0], size) || s.payloads.taken+weight(batch)+head.Size > s.payloads.most) {
			break
		}
		if len(batch) == 0 {
			if most = s.admitted(head.Topic); most == 0 {
				return nil
			}
		}
		q := s.takeAside()
		if head.Suspect() && s.suspects.running {
			q.offered = true
			s.suspects.waiting = append(s.suspects.waiting, q)
			continue
		}
		topic, size = head.Topic, size+head.Size
		q.running = true
		if head.Suspect() {
			s.suspects.running = true
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
