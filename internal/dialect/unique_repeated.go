package dialect

func (m mysql) appendUnique(p UniqueParams) Unique {
	values := p.args()
	unique := Unique{
		Before: []Query{m.LockUnique(p.Spool, p.Digest), m.query("FindOfUniqueKey", values)},
		Store:  m.query("StoreUniqueIfNone", values),
		After:  []Query{m.of("NoteUnique", "none").with(values)},
	}
	if p.Replace {
		// The removal comes after the new message: under REPEATABLE READ it locks the gap of a
		// message that is gone since the snapshot, and that gap ends at the new message instead of
		// at the end of the table, where others insert.
		unique.Store = m.query("StoreUnique", values)
		unique.After = []Query{m.query("RemoveOfUniqueKey", values), m.query("NoteUnique", values)}
	}
	return unique
}

func (s sqlite) appendUnique(p UniqueParams) Unique {
	values := p.args()
	unique := Unique{Store: s.of("StoreUnique", "none").with(values), After: []Query{s.query("NoteUnique", values)}}
	if p.Replace {
		unique.Before = []Query{s.query("RemoveOfUniqueKey", values)}
		unique.Store = s.query("StoreUnique", values)
	}
	return unique
}
