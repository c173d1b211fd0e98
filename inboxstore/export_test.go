package inboxstore

// SecondCommit is how many wait before a second commit begins.
const SecondCommit = secondCommit

// Line tells a test how many deliveries to a queue wait for the next commit, and whether one is under way, which it does
// not know after Close.
func (s *Store) Line(queue string) (waiting int, committing bool) {
	in, err := s.ingest(queue)
	if err != nil {
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.line), in.committing > 0
}
