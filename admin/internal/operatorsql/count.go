package operatorsql

import "github.com/postbox-go/watermill-postbox/internal/dialect"

// count sets the statements that count. Each reads a bounded number of rows or index entries,
// however many there are, and none needs statistics: its rows are read in the order of an index, up
// to a limit. Deleted rows whose index entries the database has not removed yet cost extra.
//
// {ready} is the table of ready messages, and {retrying} that of waiting ones.
func (s *Statements) count() {
	const all, some = "COUNT(%s)", "COALESCE(SUM(%s), 0)"
	const failing = "CASE WHEN m.attempts > 0 THEN 1 ELSE 0 END"
	const dead = "CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END"
	ready := rowsOf{"{ready} m {by ready}", " AND m.state = 0", "ORDER BY m.lane, m.id"}
	waiting := rowsOf{"{retrying} m {by ready}", " AND m.state > 0", "ORDER BY m.state, m.lane, m.id"}
	due := rowsOf{"{retrying} m {by due}", " AND {waits} AND m.available_at <= (SELECT {now})", "{due order}"}
	parked := rowsOf{"{retrying} m {by due}", " AND {parked}", "ORDER BY m.available_at"}
	done := rowsOf{"{history} m", "", "ORDER BY m.done_at"}
	retrying := rowsOf{"{retrying} m {by ready}", " AND m.state = 2", "ORDER BY m.lane, m.id"}
	const lately = "died_at > (SELECT {now}) - 600000000"
	letters := rowsOf{"{dead_letters} m {by death}", "", "ORDER BY m.died_at DESC"}
	late := rowsOf{"{dead_letters} m {by death}", " AND m." + lately, "ORDER BY m.died_at DESC"}
	// Only retrying messages have failed attempts.
	s.countUpTo, s.countFew = s.upToLimit(
		column{all, "1", ready}, column{all, "1", waiting}, column{all, "1", due}, column{all, "1", parked}, column{all, "1", done},
		column{some, failing, retrying}, column{some, dead, letters}, column{some, dead, late})

	s.InboxLetters = s.Text(`
SELECT p.consumer, SUM(p.origin), SUM(CASE WHEN p.` + lately + ` THEN p.origin ELSE 0 END)
FROM (SELECT d.consumer, CASE WHEN d.resolved_at IS NULL THEN d.origin ELSE 0 END AS origin, d.died_at FROM {dead_letters} d {by death} WHERE d.spool IS NULL ORDER BY {latest death} LIMIT {unseen ?}) p
GROUP BY p.consumer`)
}

// CountUpTo counts the messages and dead letters of spools, each number up to a limit: id of the
// spool, ready, waiting, due among the waiting, parked, done, failing, dead letters that are not
// resolved, among the latest, and those of them that died in the last ten minutes. It reads that
// many of each.
func (s *Statements) CountUpTo(spools []int64, limit int) []dialect.Query {
	return s.ofSpools(s.countUpTo, spools, 8, limit)
}

// CountFew returns, on MySQL, the same of all spools each of whose numbers is below the limit, and
// nothing of others, in one statement.
func (s *Statements) CountFew(spools []int64, limit int) []dialect.Query {
	return s.ofFew(s.countFew, spools, limit)
}
