package spool

import "time"

// Looking says whether a search is under way.
func (f *Finder) Looking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looking
}

// Age makes what is known of the spool older.
func (s *Spool) Age(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = s.readAt.Add(-by)
}
