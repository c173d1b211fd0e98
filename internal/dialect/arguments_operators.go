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

// KeepRules stores how long a spool keeps done messages, in microseconds, unless that is 0, and by
// which rule batches of it are due. It changes no row if that is stored already.
func (s *Statements) KeepRules(spool, history int64, batches string) Query {
	return s.query("KeepRules", args{"spool": spool, "history": history, "batches": batches})
}
