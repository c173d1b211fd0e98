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
	s := common(SQLite, names)

	s.fillLanes = `
INSERT OR IGNORE INTO {lanes} (spool, lane)
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT ?, lane FROM n`

	s.join = `
INSERT INTO {members} (spool, holder, in_flight, expires_at, sharing) VALUES (?, ?, ?, {now} + ?, ?)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = excluded.in_flight, expires_at = excluded.expires_at, sharing = excluded.sharing`

	s.acquire.text = `
UPDATE {lanes} SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = MAX(token, {now}) + :later, holder = :holder
WHERE spool = :spool AND lane IN (
	SELECT lane FROM {lanes} WHERE spool = :spool AND ` + canBeTaken + ` ORDER BY lane LIMIT :most + 0)`

	s.ServerIn = `COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{messages}'), 0)`
	s.BeginAgain = `BEGIN`
	s.CreateVersion = `
CREATE TABLE IF NOT EXISTS ` + s.VersionTable + ` (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	version_id INTEGER NOT NULL,
	is_applied INTEGER NOT NULL,
	tstamp     TIMESTAMP DEFAULT (datetime('now'))
)`
	s.uniqueKeys(uniqueKeyGone)
	s.Unfit = `SELECT CASE WHEN timeout = 0 THEN 'busy timeout' ELSE '' END FROM pragma_busy_timeout`
	s.UnfitTables = `
SELECT COALESCE((SELECT 'earlier' FROM pragma_table_info('{lanes}') WHERE name = 'expires_at'), '')`
	s.BesideWriter = `PRAGMA wal_checkpoint(PASSIVE)`
	s.MakeWritable = `PRAGMA query_only = 0`
	s.DatabaseFile = `SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'`
	s.MaxAppend = 100 // no limit of SQLite: it lets others write in between

	// LIMIT ? + 0: SQLite plans a statement again whenever the argument of a bare LIMIT ? changes,
	// which took more time than running it.
	const known = `SELECT value FROM json_each(:known)`
	const unwanted = `SELECT value FROM json_each(:excluded)`
	const asRead = `
	SELECT m.id FROM json_each(:refs) s
	CROSS JOIN {messages} m ON m.id = s.value ->> 2
	CROSS JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7`
	s.retryFailed.text, s.buryFailed.text, s.noteFailed.text = sqliteRetryFailed, sqliteBuryFailed, sqliteNoteFailed
	s.lists = sqlite{newRepeated(repeated{
		insertHead: `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
VALUES `,
		insertRow: `(?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE {now} + ? END, {now}, ?, ?, ?, ?, ?)`,
		portion:   insertPortion,
		ready: `
SELECT ` + fetchColumns + `
FROM json_each(:cursors) c
CROSS JOIN {messages} m ON m.id IN (
	SELECT m.id FROM {messages} m
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND ` + nameInSQL + ` NOT IN (` + known + `){topics}
	  AND {turn}
	ORDER BY m.id LIMIT :page + 0)`,
		swept: statement{text: newReplacer(
			"{ranges}", "json_each(:ranges)", "{lane}", "c.value ->> 0", "{after}", "c.value ->> 1", "{up to}", "c.value ->> 2",
			" {by ready}", "", "{numbers}", known, "{words}", unwanted,
		).Replace(repeatedSweep)},
		due: `
SELECT * FROM (SELECT ` + fetchColumns + `
FROM {messages} m
WHERE m.spool = :spool AND m.state > 0 AND m.available_at <= {now} AND m.lane IN (SELECT value FROM json_each(:lanes))
  AND ` + nameInSQL + ` NOT IN (` + known + `){topics}
  AND {turn}
ORDER BY m.available_at, m.id LIMIT :due + 0)`,
		topics: ` AND m.topic NOT IN (` + unwanted + `)`,
		unique: sqliteUnique(),
		// There is one writer at a time, so no invisible transaction can add messages, and each
		// read is a watermark.
		meta: `SELECT -1, 1, ` + freeLanes + `, 0, ` + liveMembers + `, ` + spoolVersion + `, '', NULL, NULL, {now},
       ` + s.ServerIn + `, NULL, NULL`,
		removed: statement{text: `
DELETE FROM {messages} WHERE id IN (
	SELECT m.id FROM json_each(:refs) s
	CROSS JOIN {messages} m ON m.id = s.value ->> 2
	CROSS JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)`},
		kept: statement{text: `
INSERT OR IGNORE INTO {history} (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, {now}, m.attempts + 1, l.holder
FROM json_each(:refs) s
CROSS JOIN {messages} m ON m.id = s.value ->> 2
CROSS JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3`},
	}, sqliteFill(names))}
	s.find.text = `
SELECT m.id FROM json_each(:refs) s
CROSS JOIN {messages} m ON m.id = s.value ->> 2
WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3`
	s.lockAsRead.text, s.standingAsRead.text = asRead, asRead // a writing transaction locks the database
	s.countStarts.text = `UPDATE {messages} SET starts = starts + 1 WHERE id IN (` + asRead + `)`
	s.takeBackStarts.text = `
UPDATE {messages} SET starts = starts - 1 WHERE starts > 0 AND id IN (` + s.find.text + `)`
	s.release.text = `
UPDATE {lanes} SET holder = NULL WHERE spool = :spool AND holder = :holder AND lane IN ({numbers :lanes})`
	return s.finish(sqliteFill(names), unchanged)
}

func sqliteFill(names Names) replacer {
	return names.replacer(
		"{now}", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
		"{insert ignore}", "INSERT OR IGNORE", "{or ignore}", "",
		"{on conflict (claim_key)}", "ON CONFLICT (claim_key) DO UPDATE SET", "{length}", "octet_length", "{position}", "instr", "{blob ?}", "?", "{text ?}", "?", "{int ?}", "?", "{unseen ?}", "?", "{unseen flag ?}", "?",
		"{after place}", afterRow, " {for update}", "", " {skip locked}", "", "{any lane}", "", "{retrying}", names.Table("messages"), " {by key}", "", "{of key}", "INDEXED BY "+names.Prefix+"messages_retrying", " {by ready}", "", " {by id}", "",
		"{ready}", names.Table("messages"), "{by due}", "INDEXED BY "+names.Prefix+"messages_due", "{parked}", "m.state > 0 AND "+IsParked, "{waits}", "m.state > 0", "{due order}", "ORDER BY m.available_at",
		" {by death}", "", "{latest death}", "d.died_at DESC",
		"{few}", "TRUE", "{state ?}", "?", "{chosen}", "(SELECT value AS id FROM json_each(?)) s", "{listed}", names.replacer().Replace("{messages} m JOIN json_each(:ids) c ON m.id = c.value"),
		"{strays}", names.replacer().Replace(strays),
		"{first due}", "COALESCE((SELECT m.available_at FROM "+names.Table("messages")+" m INDEXED BY "+names.Prefix+"messages_due WHERE m.spool = s.id AND m.state > 0 ORDER BY m.available_at LIMIT 1), "+never+")",
		"{numbers ?}", "SELECT value AS n FROM json_each(?)",
		"{subject of m}", "unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at))",
	)
}

func (s sqlite) fetch(f FetchParams) Query {
	lanes, cursors := make([]int, len(f.Cursors)), make([][3]int64, len(f.Cursors))
	for i, c := range f.Cursors {
		lanes[i], cursors[i] = c.Lane, [3]int64{int64(c.Lane), c.After, c.upTo()}
	}
	return s.fetchOf(fetchShape{excluded: len(f.Excluded) > 0, variant: f.variant()}).with(args{
		"spool": f.Spool, "lanes": List(lanes), "cursors": List(cursors), "page": f.PerLane, "due": f.Due, "inline": f.Inline,
		"known": List(signedNames(f.known())), "excluded": List(f.Excluded), "held": List(f.Held),
	})
}
