package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// SearchEnd returns how many of so many pending messages there are after the place of a filter, up
// to its last state, and state, lane and id of the last of these. It returns no row if there is
// none. There is no such statement if [Statements.Search] finds out by itself.
func (s *Statements) SearchEnd(spool int64, f MessageFilter, among int) (q dialect.Query, separate bool) {
	if s.Kind != dialect.MySQL {
		return dialect.Query{}, false
	}
	values := f.pending(spool)
	values["among"] = among
	return s.query("SearchEnd", values), true
}

// SearchUpTo is [Statements.Search] up to a place, which [Statements.SearchEnd] has found, and
// without the row that has none of the messages.
func (s *Statements) SearchUpTo(spool int64, f MessageFilter, last Place) dialect.Query {
	values := f.pending(spool)
	values["last_state"], values["last_lane"], values["last_id"] = last.State, last.Lane, last.ID
	return s.query("SearchUpTo", values)
}
