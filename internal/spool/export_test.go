package spool

// Looking says whether a search is under way.
func (f *Finder) Looking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looking
}
