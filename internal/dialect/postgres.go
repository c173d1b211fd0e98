package dialect

import (
	"database/sql"
	"fmt"

	"github.com/lib/pq"
)

// postgres passes lists as arrays, so a statement has one text, and one prepared plan, for lists of
// any length.
type postgres struct{ *Statements }

// newPostgres returns the statements for PostgreSQL 13 and later.
func newPostgres(names Names) *Statements {
	s := newStatements(PostgreSQL, names)
	s.migrateBegin = func(number string) string { return fmt.Sprintf(postgresMigrateBegin, s.VersionTable, number) }
	s.Isolation = sql.LevelReadCommitted
	s.MaxAppend = 1000 // no limit of PostgreSQL: with more rows a statement gains nothing and takes memory
	s.lists = postgres{s}
	return s
}

// PostgresIncarnation is the expression of ServerIn without its bars, for texts that are filled in.
const PostgresIncarnation = `COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('{messages}')`

func (p postgres) fetch(f FetchParams) Query {
	n := len(f.Cursors)
	lanes, afters, upTos := make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	for i, c := range f.Cursors {
		lanes[i], afters[i], upTos[i] = int64(c.Lane), c.After, c.upTo()
	}
	var conditions []string
	switch {
	case f.LeavesOut():
		conditions = []string{"some"}
	case !f.Unordered:
		conditions = []string{"ordered"}
	}
	return p.of("Fetch", conditions...).with(args{
		"spool": f.Spool, "lanes": lanes, "after": afters, "up_to": upTos, "page": f.PerLane, "due": f.Due, "inline": f.Inline, "mark": f.Mark,
		"known": pq.Int64Array(signedNames(f.known())), "excluded": append(pq.StringArray{}, f.Excluded...), "held": append(pq.Int64Array{}, f.Held...),
		"unordered": f.Unordered, "paused": f.PausedKeys,
	})
}

func (p postgres) keep(spool int64, refs []Ref) Query {
	values, took := p.refs(spool, refs), make(pq.Int64Array, len(refs))
	for i, r := range refs {
		took[i] = r.took()
	}
	values["took"] = took
	return p.query("Keep", values)
}

// refs returns states, lanes, tokens, ids and times.
func (postgres) refs(spool int64, refs []Ref) args {
	n := len(refs)
	states, lanes, tokens := make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	ids, created := make(pq.Int64Array, n), make(pq.Int64Array, n)
	for i, r := range refs {
		states[i], lanes[i], tokens[i], ids[i], created[i] = int64(r.State), int64(r.Lane), r.Token, r.ID, r.CreatedAt
	}
	return args{"spool": spool, "states": states, "lanes": lanes, "tokens": tokens, "ids": ids, "times": created}
}

// asRead returns refs, the attempts, and the bounds of the starts.
func (p postgres) asRead(spool int64, messages []AsRead) args {
	n := len(messages)
	refs, attempts, least, most := make([]Ref, n), make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	for i, m := range messages {
		refs[i], attempts[i], least[i], most[i] = m.Ref, int64(m.Attempts), int64(m.LeastStarts), int64(m.MostStarts)
	}
	values := p.refs(spool, refs)
	values["attempts"], values["least"], values["most"] = attempts, least, most
	return values
}

func (postgres) nullable(list []*int64) any {
	text := newArrayText(len(list))
	for _, n := range list {
		text.addNullable(n)
	}
	return text.String()
}

func (postgres) numbers(list []int64) any { return append(pq.Int64Array{}, list...) }

// postgresMigrateBegin begins each migration. It takes no lock of the session, because a pooler may
// give each transaction another session, and the lock would be left behind. The first statement
// takes no snapshot, so the second one sees what was committed while the first waited. The last one
// limits the wait for locks, because all statements that need a table wait behind a migration that
// waits for it.
const postgresMigrateBegin = `
LOCK TABLE %[1]s IN SHARE ROW EXCLUSIVE MODE;
SELECT 1 / COUNT(*) FROM (SELECT 1) one WHERE NOT EXISTS (SELECT 1 FROM %[1]s WHERE version_id = %[2]s AND is_applied);
SET LOCAL lock_timeout = '500ms';`
