package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// CountUpTo counts the messages and dead letters of spools, each number up to a limit: id of the
// spool, ready, waiting, due among the waiting, parked, done, failing, dead letters that are not
// resolved, among the latest, and those of them that died in the last ten minutes. It reads that
// many of each.
func (s *Statements) CountUpTo(spools []int64, limit int) []dialect.Query {
	return s.ofSpools("CountUpTo", spools, limit)
}

// CountFew returns, on MySQL, the same of all spools each of whose numbers is below the limit, and
// nothing of others, in one statement.
func (s *Statements) CountFew(spools []int64, limit int) []dialect.Query {
	return s.ofFew("CountFew", spools, limit)
}
