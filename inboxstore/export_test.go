package inboxstore

import "time"

// SecondCommit is the number of waiting deliveries that starts a second commit.
const SecondCommit = secondCommit

// Waiting returns how many deliveries to a queue wait for the next commit, and whether a commit is
// running. After Close it returns zero values.
func (s *Store) Waiting(queue string) (waiting int, committing bool) {
	in, err := s.ingest(queue)
	if err != nil {
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.waiting), in.committing > 0
}

// AgeHistories makes all that is known of histories so much older.
func (s *Store) AgeHistories(by time.Duration) {
	s.histories.mu.Lock()
	defer s.histories.mu.Unlock()
	for _, h := range s.histories.byName {
		known := *h.known.Load()
		known.seen, known.read = known.seen.Add(-by), known.read.Add(-by)
		h.known.Store(&known)
	}
}
