package dialect

// Spools returns id, name, version, paused at, by whom, reason, end of the pause, settings, paused
// keys and paused topics of a spool, or with 0 of all. A pause that has ended is none.
func (s *Statements) Spools(spool int64) Query { return s.query("Spools", args{"spool": spool}) }

// number is how the tables have it, and statements get it.
func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// KeepBatches stores by which rule the messages of a spool are due. It changes no row if that is
// stored already.
func (s *Statements) KeepBatches(spool int64, rule string) Query {
	return s.query("KeepBatches", args{"spool": spool, "rule": rule})
}

// KeepHistory stores how long a spool keeps done messages. It changes no row if that is stored
// already.
func (s *Statements) KeepHistory(spool, micros int64) Query {
	return s.query("KeepHistory", args{"spool": spool, "history": micros})
}
