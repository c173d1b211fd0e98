package dialect

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"
)

// postgres fills in what PostgreSQL says in its own way.
type postgres struct {
	appendOneText, appendText, appendMixedText string
	ingestText, ingestMixedText                string
	removeOneText, removeText, removeMixedText string
	keepText, keepMixedText                    string
	rowsText, findText                         string // of lock and find
	standingText                               string
	lockText, countText, releaseText           string
	fetchTexts, sweepTexts                     [2][variants]string // by whether topics are excluded, and FetchParams.variant
}

// newPostgres returns the statements for PostgreSQL 13 and later. Lists travel as arrays, so a statement
// has one text, and one prepared plan, whatever their length.
func newPostgres(names Names) *Statements {
	s := common(PostgreSQL, names)

	s.FillLanes = `
INSERT INTO {lanes} (spool, lane)
SELECT ?, lane FROM generate_series(0, ?::integer - 1) AS lane
ON CONFLICT DO NOTHING`

	s.Join = `
INSERT INTO {members} (spool, holder, in_flight, expires_at) VALUES (?, ?, ?, {now} + ?)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = EXCLUDED.in_flight, expires_at = EXCLUDED.expires_at`

	// SKIP LOCKED: whoever is about to take a lane gets it, the others look for another one.
	s.Acquire = `
UPDATE {lanes} SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = GREATEST(token, {now}) + ?::bigint, holder = ?, expires_at = {now} + ?
WHERE (spool, lane) IN (
	SELECT spool, lane FROM {lanes}
	WHERE spool = ? AND (holder IS NULL OR expires_at <= {now})
	ORDER BY lane LIMIT ? FOR UPDATE SKIP LOCKED)`

	s.ServerIn = `'|' || ` + postgresIncarnation + ` || '|'`

	// It locks out Acquire, and not Renew.
	s.HoldLane = `
SELECT 1 FROM {lanes} WHERE spool = ? AND lane = ? AND token = ? FOR KEY SHARE`

	// The clock stands in a query of its own, which runs once: compared with a volatile function the index on the
	// time would be read to its end.
	s.PurgeDeadLetters = `
DELETE FROM {dead_letters} WHERE id IN (
	SELECT id FROM {dead_letters} WHERE spool = ? AND died_at < (SELECT {now}) - ?::bigint ORDER BY died_at LIMIT ?)`

	s.PurgeOthers = `
DELETE FROM {dead_letters} WHERE id IN (
	SELECT id FROM {dead_letters} WHERE spool IS NULL AND died_at < (SELECT {now}) - ?::bigint ORDER BY died_at LIMIT ?)`

	s.PurgeFailures = `
DELETE FROM {failures} WHERE id IN (
	SELECT id FROM {failures} WHERE failed_at < (SELECT {now}) - ?::bigint ORDER BY failed_at LIMIT ?)`

	s.PurgeHistory = `
DELETE FROM {history} WHERE (id, done_at) IN (
	SELECT id, done_at FROM {history} WHERE spool = ? AND done_at < (SELECT {now}) - ?::bigint ORDER BY done_at LIMIT ?)`

	s.MigrateLock = `SELECT 1 FROM (SELECT pg_advisory_lock(hashtextextended(?, 0))) l`
	s.MigrateUnlock = `SELECT 1 FROM (SELECT pg_advisory_unlock(hashtextextended(?, 0))) l`
	s.UnfitTables = `
SELECT COALESCE((SELECT CASE WHEN seqcache > 1 THEN 'sequence cache' END FROM pg_sequence WHERE seqrelid = to_regclass('{messages}_id_seq')), '')`
	s.Notify = `SELECT pg_notify(?, ?)`
	s.Isolation = sql.LevelReadCommitted
	// A server that recovers from the crash of one of its processes goes on under the same start time, but has forgotten its
	// statistics.
	s.Uptime = `
SELECT (date_part('epoch', clock_timestamp() - GREATEST(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000000)::bigint,
       (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text`
	s.MoveToWaiting = moveToWaiting
	for _, ofOne := range []*string{&s.LoadPayload, &s.Retry, &s.StandsToRetry, &s.CountStart, &s.TakeBackStart, &s.BuryMessage} {
		*ofOne += "\n  AND " + strings.ReplaceAll(seemsDear, "m.", "")
	}
	s.Writers = writers
	s.SeekStrays, s.MoveStrays = seekStrays, moveStrays
	s.MaxAppend = 1000 // no limit of PostgreSQL's: beyond it a statement gains nothing and takes memory

	insert := insertRows("{messages}", `(`+packedRows+`) AS r`, "")

	// ingest claims in the order of the keys: of two transactions that claim the same ones, one then waits for the other
	// and never each for the other. It locks the claims that it makes, and waits for those of open transactions.
	const claimed = `r JOIN c ON c.claim_key = r.claim_key`
	ingest := func(inserts string) string {
		return `
WITH r AS MATERIALIZED (` + packedRows + `),
c AS (
	INSERT INTO {claims} (claim_key, claimed_at)
	SELECT claim_key, {now} FROM r ORDER BY claim_key
	ON CONFLICT DO NOTHING
	RETURNING claim_key),
` + inserts + `
SELECT n FROM r WHERE claim_key NOT IN (SELECT claim_key FROM c)`
	}
	ingestReady := ingest(`m AS (` + insertRows("{messages}", claimed, "") + `)`)
	ingestMixed := ingest(`m AS (` + insertRows("{messages}", claimed, ofReady) + `),
w AS (` + insertRows("{waiting}", claimed, ofWaiting) + `)`)

	// A mark costs a transaction id. The end of a snapshot is no substitute: it is one above the last transaction
	// that ended, and many that run may have started beyond. The sequence is read first, since the row that the id
	// depends on is its own.
	//
	// A clock in a sub-select is read once, and so bounds the scan of its index; read for each row it would only
	// filter. One index descent a lane; the planner may not turn it into a scan of the whole table.
	//
	// Ids and times have two bounds. The planner expects a number with one bound to be that of a third of all messages: enough to
	// compile the statement.
	fetch := stuck + `
SELECT f.* FROM unnest(?::smallint[], ?::bigint[]) AS c(lane, after)
CROSS JOIN LATERAL (
	SELECT ` + fetchColumns + `
	FROM ONLY {messages} m
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= ` + largestNumber + `
	  AND ` + nameInSQL + ` NOT IN (SELECT unnest(?::bigint[]))
	  AND {wanted}
	  AND {ready turn}
	ORDER BY m.id` + alongIndex + ` LIMIT ?) f
UNION ALL (
	SELECT ` + fetchColumns + `
	FROM {waiting} m
	WHERE m.spool = ? AND m.available_at BETWEEN ` + leastNumber + ` AND (SELECT {now}) AND m.lane = ANY(?::smallint[])
	  AND ` + nameInSQL + ` NOT IN (SELECT unnest(?::bigint[]))
	  AND {wanted}
	  AND {turn}
	ORDER BY m.available_at, m.id` + alongIndex + ` LIMIT ?)
UNION ALL
SELECT -1::smallint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, ` + freeLanes + `::smallint,
       CASE WHEN a.last_value IS NOT NULL AND ?::boolean THEN pg_current_xact_id()::text::bigint END, ` + liveMembers + `::integer,
       ` + spoolVersion + `, ` + postgresIncarnation + `, pg_current_snapshot()::text::bytea, NULL, {now}, CASE WHEN a.is_called THEN a.last_value ELSE 0 END, NULL, NULL
FROM {messages}_id_seq a`

	remove := inPlace(found(place), `DELETE FROM {messages} m`, `id, state`)

	removeOne := `
DELETE FROM {messages} m
USING {lanes} l
WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ? AND m.created_at = ?
  AND l.spool = m.spool AND l.lane = m.lane AND l.token = ?
  AND ` + seemsDear

	keep := `
INSERT INTO {history} (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, {now}, m.attempts + 1` + found(`m.*`) + `
ON CONFLICT DO NOTHING`

	const skipLocked = `
	FOR UPDATE SKIP LOCKED`
	lock := `
SELECT m.id` + foundStarted(`m.id`, skipLocked)
	count := inPlace(foundStarted(place, ``), `UPDATE {messages} m SET starts = m.starts + 1`, `id, starts`)

	release := `
UPDATE {lanes} SET holder = NULL, expires_at = 0 WHERE spool = ? AND holder = ? AND lane = ANY(?::smallint[])`

	fill := names.replacer(
		"{now}", "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
		"{arrival}", "(date_part('epoch', statement_timestamp()) * 1000000)::bigint",
		"{insert ignore}", "INSERT", "{or ignore}", "ON CONFLICT DO NOTHING", " {lock in share mode}", "",
		"{on conflict (claim_key)}", "ON CONFLICT (claim_key) DO UPDATE SET", "{length}", "octet_length", "{blob ?}", "?::bytea", "{text ?}", "?::text", "{int ?}", "?::bigint",
		"{after ?}", afterRow, "{for update}", "FOR UPDATE", "{any lane}", anyLane, "{retrying}", names.Table("waiting"), " {by key}", "", " {by ready}", "",
		"{numbers ?}", "SELECT unnest(?::bigint[])",
	)
	text := func(query string) string { return dollars(fill.Replace(strings.TrimSpace(fill.Replace(query)))) }
	lists := postgres{
		appendOneText: text(insertReady), appendText: text(insert), appendMixedText: text(appendMixed),
		ingestText: text(ingestReady), ingestMixedText: text(ingestMixed),
		removeOneText: text(ready(removeOne)), removeText: text(ready(remove)), removeMixedText: text(remove),
		keepText: text(ready(keep)), keepMixedText: text(keep),
		rowsText: text(storedRefs(skipLocked)), findText: text(storedRefs("")), standingText: text(`SELECT m.id` + found(`m.id`)),
		lockText: text(lock), countText: text(count), releaseText: text(release),
	}
	for i, wanted := range wantedTopics {
		for variant, turn := range turns {
			ready, turn := strings.ReplaceAll(turn, unblocked, calm), strings.ReplaceAll(turn, unblocked, unblockedByIndex)
			parts := strings.NewReplacer("{wanted}", wanted, "{turn}", turn, "{ready turn}", ready)
			lists.fetchTexts[i][variant] = text(parts.Replace(fetch))
			lists.sweepTexts[i][variant] = text(parts.Replace(postgresSweep))
		}
	}
	s.lists = lists
	return s.finish(fill, dollars)
}

// postgresIncarnation tells a server from every other one that has or had these tables, and a table from one that took its
// place: a standby has started at another time than its primary, and a restore makes or fills another file.
const postgresIncarnation = `extract(epoch FROM pg_postmaster_start_time())::text || ' ' || pg_relation_filenode('{messages}')`

// wantedTopics hold for a message whose topic is not excluded, where none is and where some are. The planner expects a
// list of topics to leave out every other message whatever is in it, and so to read twice as many.
var wantedTopics = [2]string{`?::text[] IS NOT NULL`, `m.topic NOT IN (SELECT unnest(?::text[]))`}

// writers lists the transactions that hold the lock that an INSERT takes on the table and keeps until the transaction ends.
// A transaction that was prepared by another session has no session, and is named after its virtual transaction alone while
// its locks change hands.
const writers = `
WITH l AS MATERIALIZED (SELECT locktype, relation, database, mode, transactionid, virtualtransaction FROM pg_locks),
w AS MATERIALIZED (
	SELECT virtualtransaction FROM l
	WHERE locktype = 'relation' AND relation = '{messages}'::regclass AND mode = 'RowExclusiveLock'
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT transactionid::text::bigint FROM l
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND virtualtransaction IN (SELECT virtualtransaction FROM w)
UNION
SELECT split_part(virtualtransaction, '/', 2)::bigint FROM w WHERE virtualtransaction LIKE '-1/%'`

// stuckRows are compared with each message one by one.
const stuckRows = 16

// stuck are messages with a key that wait for another attempt, as far as there are not more of them. They are read once, and
// answer for nearly every message what it stands behind without a look into an index: mostly there is none, and
// where much stands behind one, few are stuck.
var stuck = fmt.Sprintf(`
WITH stuck AS MATERIALIZED (
	SELECT key_hash, id FROM {waiting} WHERE spool = ? AND state = 2 AND key_hash IS NOT NULL
	ORDER BY key_hash, id`+alongIndex+` LIMIT %d)`, stuckRows)

// calm is unblocked, with the help of stuck: a message of another key goes on if stuck has all there are, and one behind all
// of them waits. It has unblockedByIndex in it once: the planner adds the cost of a search for each message that it
// expects to meet, though hardly any is made, and from a hundred thousand on it compiles the statement, which takes
// longer than running it.
var calm = fmt.Sprintf(`CASE
	WHEN CASE WHEN m.key_hash = ANY(ARRAY(SELECT key_hash FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < %d END
	THEN (m.key_hash = ANY(ARRAY(SELECT key_hash FROM stuck))) IS NOT TRUE
	ELSE %s END`, stuckRows, unblockedByIndex)

// unblockedByIndex is unblocked, and reads along the index whatever the statistics say. An EXISTS would lose its order.
const unblockedByIndex = `(m.key_hash IS NULL OR (
	SELECT 1 FROM {retrying} b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.id < m.id
	ORDER BY b.id` + alongIndex + ` LIMIT 1) IS NULL)`

// anyLane lets a search for an id use the primary key, whose last column it is.
var anyLane = fmt.Sprintf(`
  AND m.state IN (0, 1, 2)
  AND m.lane = ANY(ARRAY(SELECT generate_series(0, %d)::smallint))`, MaxLanes-1)

func (p postgres) append(spool int64, rows []Row) []Query {
	switch {
	case !allReady(rows):
		return []Query{{Text: p.appendMixedText, Args: append(pack(nil, rows), spool, spool)}}
	case len(rows) == 1:
		return []Query{{Text: p.appendOneText, Args: readyValues(spool, rows[0])}}
	default:
		return []Query{{Text: p.appendText, Args: append([]any{spool}, pack(nil, rows)...)}}
	}
}

func (p postgres) fetch(f FetchParams) Query {
	lanes, afters := make(pq.Int64Array, len(f.Cursors)), make(pq.Int64Array, len(f.Cursors))
	for i, c := range f.Cursors {
		lanes[i], afters[i] = int64(c.Lane), c.After
	}
	known := pq.Int64Array(signedNames(f.known()))
	excluded := append(pq.StringArray{}, f.Excluded...)
	var held []any
	if len(f.Held) > 0 {
		held = []any{pq.Int64Array(f.Held)}
	}
	return Query{Text: p.fetchTexts[min(len(excluded), 1)][f.variant()], Args: slices.Concat(
		[]any{f.Spool, lanes, afters, f.Inline, f.Inline, f.Spool, known, excluded}, held, []any{f.PerLane},
		[]any{f.Inline, f.Inline, f.Spool, lanes, known, excluded}, held, []any{f.Due},
		[]any{f.Spool, f.Mark, f.Spool, f.Spool},
	)}
}

func (p postgres) remove(spool int64, refs []Ref) Query {
	switch {
	case !wereReady(refs):
		return Query{Text: p.removeMixedText, Args: append(refArrays(refs), spool, spool)}
	case len(refs) == 1:
		ref := refs[0]
		return Query{Text: p.removeOneText, Args: []any{spool, ref.State, ref.Lane, ref.ID, ref.CreatedAt, ref.Token}}
	default:
		return Query{Text: p.removeText, Args: append(refArrays(refs), spool, spool)}
	}
}

func (p postgres) keep(spool int64, refs []Ref) Query {
	text := p.keepText
	if !wereReady(refs) {
		text = p.keepMixedText
	}
	return Query{Text: text, Args: append(refArrays(refs), spool, spool)}
}

func (p postgres) lock(spool int64, refs []Ref) Query {
	return Query{Text: p.rowsText, Args: append(refArrays(refs), spool)}
}

func (p postgres) find(spool int64, refs []Ref) Query {
	return Query{Text: p.findText, Args: append(refArrays(refs), spool)}
}

func (p postgres) standing(spool int64, refs []Ref) Query {
	return Query{Text: p.standingText, Args: append(refArrays(refs), spool, spool)}
}

func (p postgres) lockStarts(spool int64, started []Started) Query {
	return Query{Text: p.lockText, Args: append(startedArrays(started), spool, spool)}
}

func (p postgres) countStarts(spool int64, started []Started) Query {
	return Query{Text: p.countText, Args: append(startedArrays(started), spool, spool)}
}

// startedArrays returns what refArrays does, and the starts.
func startedArrays(started []Started) []any {
	refs, before := make([]Ref, len(started)), make(pq.Int64Array, len(started))
	for i, s := range started {
		refs[i], before[i] = s.Ref, int64(s.Before)
	}
	return append(refArrays(refs), before)
}

// refArrays returns states, lanes, tokens, ids and times.
func refArrays(refs []Ref) []any {
	n := len(refs)
	states, lanes, tokens := make(pq.Int64Array, n), make(pq.Int64Array, n), make(pq.Int64Array, n)
	ids, created := make(pq.Int64Array, n), make(pq.Int64Array, n)
	for i, r := range refs {
		states[i], lanes[i], tokens[i], ids[i], created[i] = int64(r.State), int64(r.Lane), r.Token, r.ID, r.CreatedAt
	}
	return []any{states, lanes, tokens, ids, created}
}

func (p postgres) release(spool int64, holder string, lanes []int) Query {
	list := make(pq.Int64Array, len(lanes))
	for i, lane := range lanes {
		list[i] = int64(lane)
	}
	return Query{Text: p.releaseText, Args: []any{spool, holder, list}}
}
