package dialect

import "fmt"

// never is later than every time: the time of what does not exist.
const never = "9223372036854775807"

// count sets the statements that count. Each reads a bounded number of rows or index entries,
// however many there are, and none needs statistics: its rows are read in the order of an index, up
// to a limit. Deleted rows whose index entries the database has not removed yet cost extra.
//
// {ready} is the table of ready messages, and {retrying} that of waiting ones.
func (s *Statements) count() {
	// Ids rise with time, so the oldest message is among the first ones of each state and lane. Of
	// transactions that run at the same time one may get a lower id than another that wrote before,
	// so the time may be wrong by the duration of a transaction.
	//
	// The order names all columns of the index, since MySQL would sort all messages of the state if
	// it left out those that are equal to a column of another table.
	// Mostly there is none of a state, which one look tells. With EXISTS, PostgreSQL would read the
	// whole table for it.
	oldest := func(state int, table string) string {
		return fmt.Sprintf(`CASE WHEN (SELECT 1 FROM %[1]s m {by ready} WHERE m.spool = s.id AND m.state = %[2]d ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM %[1]s m {by ready} WHERE m.spool = s.id AND m.state = %[2]d AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), %[3]s) ELSE %[3]s END`, table, state, never)
	}
	s.Ages = fmt.Sprintf(`
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT s.id, s.name, {now},
       %s,
       %s,
       %s,
       {first due},
       COALESCE(`+PausedAt+`, `+never+`), s.batches
FROM (SELECT id, name, paused_at, pause_ends_at, batches FROM {spools} UNION ALL SELECT o.stray, NULL, NULL, 0, '' FROM ({strays}) o WHERE o.stray IS NOT NULL) s
WHERE {few}`, oldest(StateReady, "{ready}"), oldest(StateScheduled, "{retrying}"), oldest(StateRetrying, "{retrying}"))
}

// strays finds the spools without a row that messages name, in the gaps between the ids of spools,
// with a descent of the index for each gap.
const strays = `
	SELECT (SELECT MIN(m.spool) FROM {messages} m
	        WHERE m.spool > g.id AND m.spool < COALESCE((SELECT MIN(n.id) FROM {spools} n WHERE n.id > g.id), ` + never + `)) AS stray
	FROM (SELECT id FROM {spools} UNION ALL SELECT 0) g`

// straysByGroup does the same with a descent for each spool. MariaDB would read a whole index for
// strays.
const straysByGroup = `
	SELECT g.spool AS stray FROM (SELECT DISTINCT m.spool FROM {messages} m FORCE INDEX (ready)) g WHERE g.spool NOT IN (SELECT id FROM {spools})`
