package spool

// Known says whether the spool remembers its id.
func (s *Spool) Known() bool { return s.ID() != 0 }

// Looking says whether a search is under way.
func (f *Finder) Looking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looking
}
