package dialect

// sqlite reads all lanes in one part, because the driver binds each argument by a search among all
// of them.
type sqlite struct{ repeated }

// insertPortion is the number of rows that SQLite inserts at a time. Preparing a text for the
// actual number of rows takes longer than inserting them, and the driver searches each argument
// among all of them. Larger portions gain little more.
const insertPortion = 8

// newSQLite returns the statements for SQLite 3.43 and later.
func newSQLite(names Names) *Statements {
	s := newStatements(SQLite, names)
	s.MaxAppend = 100 // no limit of SQLite: it lets others write in between
	s.lists = sqlite{repeated{Statements: s, messages: s.rows("Append"), claims: s.rows("IngestClaims"), portion: insertPortion}}
	return s
}

func (s sqlite) fetch(f FetchParams) Query {
	lanes, cursors := make([]int, len(f.Cursors)), make([][3]int64, len(f.Cursors))
	for i, c := range f.Cursors {
		lanes[i], cursors[i] = c.Lane, [3]int64{int64(c.Lane), c.After, c.upTo()}
	}
	return s.of("Fetch", f.conditions()...).with(args{
		"spool": f.Spool, "lanes": List(lanes), "cursors": List(cursors), "page": f.PerLane, "due": f.Due, "inline": f.Inline,
		"known": List(signedNames(f.known())), "excluded": List(f.Excluded), "held": List(f.Held),
	})
}
