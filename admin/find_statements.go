package admin

import (
	"strings"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// The statements of [Admin.Find]. Each looks at a bounded number of rows, or walks an index.
const (
	searchedSpools = `
SELECT s.id, s.name, s.history, s.settings,
       COALESCE((SELECT 1 FROM {messages} m {by ready} WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1), 0)
           + COALESCE((SELECT 1 FROM {messages} m {by ready} WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1 OFFSET {few}), 0),
       COALESCE((SELECT 1 FROM {history} h WHERE h.spool = s.id ORDER BY h.spool, h.done_at LIMIT 1), 0)
           + COALESCE((SELECT 1 FROM {history} h WHERE h.spool = s.id ORDER BY h.spool, h.done_at LIMIT 1 OFFSET {few}), 0)
FROM {spools} s
ORDER BY s.id`

	// The columns of [storedMessage.scan], after the id of a spool.
	pendingFound = `
SELECT m.spool, m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END, 0, 0, 0, ''
FROM `
	doneFound = `
SELECT m.spool, 3, 0, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.done_at, 0, 0, m.took, COALESCE(m.process, '')
FROM `

	matches = `m.message_id = ? OR m.ordering_key = ? OR m.id = ? OR {metadata has}`

	findPending = pendingFound + `(
	SELECT m.spool, m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at, m.metadata
	FROM {messages} m WHERE m.spool = ? ORDER BY m.spool, m.state, m.lane, m.id LIMIT {most}) m
WHERE ` + matches + `
LIMIT 51`
	// MariaDB would copy what it looks at into a table on its disk.
	findPendingUpTo = pendingFound + `{messages} m {by ready}
WHERE m.spool = ? AND (m.state < ? OR (m.state = ? AND m.lane < ?) OR (m.state = ? AND m.lane = ? AND m.id <= ?)) AND (` + matches + `)
ORDER BY m.state, m.lane, m.id
LIMIT 51`
	findFewPending = pendingFound + `{few pending} IN ({ids}) AND (` + matches + `)
LIMIT 51`
	endOfPending = `
SELECT m.state, m.lane, m.id FROM {messages} m {by ready} WHERE m.spool = ? ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1 OFFSET {most}`

	findDone = doneFound + `{history} m
WHERE m.spool = ? AND m.done_at > ? AND (m.ordering_key = ? OR {metadata has})
ORDER BY m.spool DESC, m.done_at DESC
LIMIT 51`
	findFewDone = doneFound + `{few done} IN ({ids}) AND (m.ordering_key = ? OR {metadata has})
LIMIT 51`
	endOfDone = `
SELECT m.done_at FROM {history} m WHERE m.spool = ? ORDER BY m.spool DESC, m.done_at DESC LIMIT 1 OFFSET {most}`

	findDoneNumber = doneFound + `{history} m WHERE m.id = ? LIMIT 51`
	findDoneID     = doneFound + `{history} m WHERE {message id} LIMIT 51`

	findLetters = `
SELECT m.id FROM {dead_letters} m
WHERE m.id > ? AND (m.ordering_key = ? OR {position}(m.error, ?) > 0 OR {metadata has})
ORDER BY m.id DESC
LIMIT 51`
	findLettersID = `
SELECT m.id FROM {dead_letters} m WHERE {message id} LIMIT 51`

	findActs = `
SELECT m.acted_at, m.actor, m.action, m.target, m.subject, m.affected, m.note FROM {audit} m
WHERE m.id > ? AND ({position}(m.filter, ?) > 0 OR {position}(m.note, ?) > 0 OR m.subject IN ({subjects}))
ORDER BY m.id DESC
LIMIT 51`
	endOfActs = `
SELECT id FROM {audit} ORDER BY id DESC LIMIT 1 OFFSET {most}`
)

// query returns a statement of this file with its arguments.
func (f *finder) query(text string, args ...any) dialect.Query {
	ready, most, position, metadata, id := "", "?", "INSTR", "INSTR(m.metadata, ?) > 0", "m.message_id = ?"
	offset, few := "100", func(table, _ string) string { return table + " WHERE m.spool" }
	switch f.statements.Kind {
	case dialect.PostgreSQL: // the planner does not see the number, and so walks along the index
		most, offset, position, metadata = "(SELECT ?::bigint)", "(SELECT 100)", "strpos", "position(?::bytea IN m.metadata) > 0"
		id = "substring(m.message_id FROM 1 FOR 64) = substring(?::bytea FROM 1 FOR 64) AND m.message_id = ?"
		few = func(table, order string) string { // it would read all of a table that it takes for small
			return "{spools} s CROSS JOIN LATERAL (SELECT * FROM " + table + " WHERE m.spool = s.id ORDER BY m.spool, " + order + " LIMIT (SELECT 100)) m WHERE s.id"
		}
		if strings.Contains(text, "{message id}") {
			args = []any{args[0], args[0]}
		}
	case dialect.MySQL:
		ready = "FORCE INDEX (ready)"
	case dialect.SQLite:
	}
	names := strings.NewReplacer(
		"{few pending}", few("{messages} m "+ready, "m.state, m.lane, m.id"), "{few done}", few("{history} m", "m.done_at"), "{few}", offset, "{by ready}", ready, "{most}", most, "{position}", position, "{metadata has}", metadata, "{message id}", id,
	)
	return dialect.Query{Text: f.statements.Text(names.Replace(text)), Args: args}
}
