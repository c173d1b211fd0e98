package dialect

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// mysql reads each lane in a part of its own, or all lanes in one part, because MariaDB has no
// LATERAL.
type mysql struct {
	repeated
	upTo      string // the ready messages of all lanes up to an id
	calmTurns [variants]string
	removeOne statement
	rows      mysqlRows
}

// newMySQL returns the statements for MySQL 8 and MariaDB 10.6 and later.
func newMySQL(names Names) *Statements {
	s := common(MySQL, names)
	s.fillLanes = `
INSERT IGNORE INTO {lanes} (spool, lane)
SELECT ?, q.lane FROM (
	WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
	SELECT lane FROM n) q`

	s.join = `
INSERT INTO {members} (spool, holder, in_flight, expires_at, sharing) VALUES (?, ?, ?, {now} + ?, ?)
ON DUPLICATE KEY UPDATE in_flight = VALUES(in_flight), expires_at = VALUES(expires_at), sharing = VALUES(sharing)`

	// An UPDATE waits for locks, whatever its sub-selects say. With innodb_snapshot_isolation it
	// also waits for those of rows that it only passes over, such as a lane that a process has
	// locked which was cut off. So changes of lanes look up each row, and those of other members
	// are locked first. The members are those of the snapshot of the search. So a lane is locked
	// only if no process has taken it since: such a process may have joined since, too. Then it has
	// another token.
	s.freeLanes.text = `
SELECT lane, token FROM {lanes} WHERE spool = :spool AND ` + canBeTaken + ` ORDER BY lane LIMIT :most`

	s.lockLanes.text = `
SELECT l.lane FROM JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]')) s
STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = s.lane
WHERE l.spool = :spool AND l.token = s.token
FOR UPDATE /*!80000 OF l */ SKIP LOCKED`

	s.acquire.text = `
UPDATE JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = CASE WHEN l.holder IS NULL THEN l.suspect ELSE 1 END, l.token = GREATEST(l.token, {now}) + :later, l.holder = :holder
WHERE l.spool = :spool`

	// LIMIT keeps the search apart from the change, so that it locks nothing.
	s.releaseAll.text = `
UPDATE (SELECT lane FROM {lanes} WHERE spool = :spool AND holder = :holder LIMIT 32) s STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = 1, l.holder = NULL
WHERE l.spool = :spool AND l.holder = :holder`

	// Under REPEATABLE READ, only a locking read sees a row that is newer than the transaction.
	// RegisterSpool has taken this lock already when it found the row.
	s.FindNewSpool = `
SELECT id FROM {spools} WHERE name = ? LOCK IN SHARE MODE`

	s.holdLane = `
SELECT 1 FROM {lanes} WHERE spool = ? AND lane = ? AND token = ? LOCK IN SHARE MODE`

	s.MigrateLock = `SELECT COALESCE(GET_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', ?), 256), 1, 60), 3600), 0)`
	s.MigrateUnlock = `SELECT COALESCE(RELEASE_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', ?), 256), 1, 60)), 0)`
	// Under REPEATABLE READ a delete locks the gaps around the rows it finds, and waits for
	// transactions that insert there. Producers then wait for the delete, so one long transaction
	// would hold up all of them.
	s.Isolation, s.Isolate = sql.LevelReadCommitted, true
	// A DELETE must not read the creation time of the table: MariaDB 10.11 crashes on a DELETE that
	// reads its catalog.
	s.ServerIn = `CONCAT('|', ` + mysqlServer + `, '/')`

	// Outside a transaction the statement releases its locks immediately. It returns nothing on
	// MySQL, and on a cluster, whose nodes do not see each other's locks.
	s.FreeWriters = `
SELECT id FROM {writers} WHERE /*M! @@wsrep_on = 0 AND */ /*!50700 0 = 1 AND */ id >= 0 FOR UPDATE SKIP LOCKED`

	// MariaDB and MySQL have the same table in different places. Each ignores the comment that is
	// meant for the other one.
	s.Uptime = `
SELECT CAST(VARIABLE_VALUE AS SIGNED) * 1000000, CONCAT(@@hostname, ' ', @@port, ' ', @@server_id)
FROM /*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */
WHERE VARIABLE_NAME = 'Uptime'`
	s.Unfit = `SELECT CASE WHEN @@max_allowed_packet < 16777216 THEN 'packet' ELSE ` + mysqlUnfit + ` END`
	s.UnfitTables = `
SELECT COALESCE((SELECT MAX('earlier') FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{lanes}' AND COLUMN_NAME = 'expires_at'), '')`
	s.uniqueKeys(uniqueKeyGone)
	s.ReadsUpTo = true
	// MySQL has no such setting within a statement, and waits for innodb_lock_wait_timeout.
	s.Impatient = `/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ `
	s.IsMariaDB = `SELECT /*M! 1 + */ 0`
	s.MaxAppend = 65535 / 12 // parameters a statement, parameters a row

	s.CreateVersion = `
CREATE TABLE IF NOT EXISTS ` + s.VersionTable + ` (
	id         SERIAL NOT NULL PRIMARY KEY,
	version_id BIGINT NOT NULL,
	is_applied BOOLEAN NOT NULL,
	tstamp     TIMESTAMP NULL DEFAULT NOW()
)`

	const words = `SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j`
	const storedRow = `
SELECT m.id FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at`
	const asRead = `JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s`
	standing := `
SELECT m.id FROM ` + asRead + `
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND ` + mysqlAsRead
	s.retryFailed.text, s.buryFailed.text, s.noteFailed.text = mysqlRetryFailed, mysqlBuryFailed, mysqlNoteFailed
	fill := mysqlFill(names)
	// Each state has a part of its own, which reads along the index as far as its limit. Of both
	// states together the server would read and sort all messages that are due.
	dueOf := func(state int) string {
		return `(SELECT ` + fetchColumns + `
FROM {messages} m FORCE INDEX (due)
WHERE m.spool = :spool AND m.state = ` + strconv.Itoa(state) + ` AND m.available_at <= {now} AND FIND_IN_SET(m.lane, :lanes)
  AND {unknown}{topics}
  AND {turn}
ORDER BY m.available_at, m.id LIMIT :due)`
	}
	// FORCE INDEX: the server's statistics of a table that fills and empties are outdated. Without
	// it the server reads the whole table for each message to learn that no message waits.
	// FIND_IN_SET searches the short list of lanes for each message, which costs less than a
	// derived table of them.
	lists := mysql{removeOne: MySQL.marked(strings.TrimSpace(fill.Replace(mysqlRemoveOne))), upTo: fill.Replace(`(SELECT ` + fetchColumns + `
FROM {messages} m FORCE INDEX (PRIMARY)
WHERE m.id > :after AND m.id <= :up_to AND m.spool = :spool AND m.state = 0 AND FIND_IN_SET(m.lane, :lanes)
  AND {unknown}{topics}
  AND {turn or calm}
ORDER BY m.id)`), repeated: newRepeated(repeated{
		insertHead:  mysqlInsert,
		insertFirst: mysqlRow + holdWriter + `)`,
		insertRow:   mysqlRow + `0)`,
		ready: `
(SELECT ` + fetchColumns + `
FROM {messages} m FORCE INDEX (ready)
WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id > :after AND m.id <= :up_to
  AND {unknown}{topics}
  AND {turn}
ORDER BY m.id LIMIT :page)`,
		swept: statement{text: newReplacer(
			"{ranges}", `JSON_TABLE(:ranges, '$[*]' COLUMNS (lane INT PATH '$[0]', after BIGINT PATH '$[1]', up_to BIGINT PATH '$[2]'))`,
			"{lane}", "c.lane", "{after}", "c.after", "{up to}", "c.up_to", "{by ready}", "FORCE INDEX (ready)", "{numbers}", "{numbers :known}", "{words}", words,
		).Replace(repeatedSweep)},
		due:    dueOf(StateRetrying) + unionAll + dueOf(StateScheduled),
		topics: ` AND m.topic NOT IN (` + words + `)`,
		unique: mysqlUnique(),
		// Transaction 0 stands for all running transactions, until FreeWriters has shown that all
		// transactions from before a mark have ended.
		meta: `SELECT -1, 0, ` + freeLanes + `, 1, ` + liveMembers + `, ` + spoolVersion + `,
       ` + mysqlIncarnation + `, NULL, ` + mysqlUnfit + `, {now},
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, ` + highestStored + `, NULL
` + mysqlCatalog,
		removed: statement{text: mysqlRemove},
		kept: statement{text: `
INSERT IGNORE INTO {history} (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, {now}, m.attempts + 1, l.holder
FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN {lanes} l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at` + inTransaction},
	}, fill)}
	for variant := range variants {
		lists.calmTurns[variant] = fill.Replace(turn(variant, "("+mysqlCalm+" OR "+Unblocked+")"))
	}
	lists.rows = mysqlRows{head: lists.insertHead + " ", claimHead: lists.claimHead + " ", now: fill.Replace("{now}"), holdWriter: fill.Replace(fill.Replace(holdWriter))}
	s.lists = lists
	s.lock.text, s.find.text = storedRow+lockMessages, storedRow
	s.lockAsRead.text, s.standingAsRead.text = standing+lockMessages, standing
	s.countStarts.text = `
UPDATE ` + asRead + `
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts + 1
WHERE m.spool = :spool AND ` + mysqlAsRead
	s.takeBackStarts.text = `
UPDATE JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts - 1
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND m.starts > 0`
	s.release.text = `
UPDATE JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN {lanes} l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.holder = NULL
WHERE l.spool = :spool AND l.holder = :holder`
	return s.finish(fill, unchanged)
}

// mysqlCalm is true if no message with a key waits for another attempt. The server evaluates it
// once for a part, and then looks for none before each message.
const mysqlCalm = `NOT EXISTS (SELECT 1 FROM {retrying} c {by key} WHERE c.spool = :spool AND c.state = 2 AND c.key_hash IS NOT NULL)`

// lockMessages locks the messages that a list in JSON names. MySQL refuses to lock that list
// (3569), and MariaDB has no words to leave it out, and ignores the comment.
const lockMessages = `
FOR UPDATE /*!80000 OF m */ SKIP LOCKED`

// mysqlServer identifies a server since its start. UUID_SHORT is a counter that begins at the
// second of the start, times 2^24. No session outlives the server, so each session keeps what it
// found: then only others can count so far that it seems to be the next second, which costs a read
// more. On MariaDB mysqlIncarnation also distinguishes a table from one that replaced it.
const mysqlServer = `CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24))`

const mysqlIncarnation = `CONCAT(` + mysqlServer + `, '/'/*M! , COALESCE(t.CREATE_TIME, '') */)`

// mysqlUnfit returns why the reads of this session cannot be trusted, or why its writes are not
// kept. Each read checks this, because a session may be changed, and so may the server's default
// for new sessions.
const mysqlUnfit = `CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END`

// WriterGroups is the number of rows in {writers}. A transaction locks the row that belongs to the
// current 25 ms. So a row becomes free when its 25 ms are over and the last transaction that locked
// it has ended.
const WriterGroups = 64

// mysqlInto and mysqlInsert begin an INSERT of a query's result, and of rows.
const (
	mysqlInto = `
INSERT INTO {messages} (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
`
	mysqlInsert = mysqlInto + `VALUES `
)

// mysqlRow is a row of an INSERT, without its attempts.
const mysqlRow = `(?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE {now} + ? END, {now}, ?, ?, ?, ?, ?, `

// holdWriter is the value for the attempts of the first row of an INSERT, which is 0. The server
// evaluates it, and takes the lock, before it assigns ids to the rows. If the row of {writers} is
// missing, drainers never find all rows free and read from 0.
const holdWriter = `COALESCE((SELECT 0 FROM {writers} w WHERE w.id = ({now} DIV 25000) MOD 64 LOCK IN SHARE MODE), 0)`

// mysqlCatalog is what MariaDB's catalog has of the table of messages. A drainer uses it to detect
// that a backup was restored while it runs: a table that was created again has another creation
// time, and a table that was emptied and filled again has a lower counter. MySQL caches such
// answers for a day, but reads begin at 0 there. The nodes of a cluster have counters of their own.
const mysqlCatalog = `/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = '{messages}' */`

// inTransaction keeps a statement from running in a transaction of its own. In a deadlock the
// server rolls back the whole transaction of a handler. If the handler ignores that, each of its
// later statements would be committed by itself. Only MariaDB reports whether there is a
// transaction.
const inTransaction = ` AND /*M! @@in_transaction = */ 1`

// highestStored is the highest id of a message from an id on. The sum keeps the server from
// beginning at the end of the table, where it would pass over all messages that are removed and not
// purged yet, also those before that id.
const highestStored = `(SELECT MAX(e.id + 0) FROM {messages} e FORCE INDEX (PRIMARY) WHERE e.id >= :look_from)`

func mysqlFill(names Names) replacer {
	return names.replacer(
		"{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))",
		"{insert ignore}", "INSERT IGNORE", "{or ignore}", "", "{lock in share mode}", "LOCK IN SHARE MODE",
		"{on conflict (claim_key)}", "ON DUPLICATE KEY UPDATE", "{length}", "OCTET_LENGTH", "{position}", "INSTR", "{blob ?}", "?", "{text ?}", "?", "{int ?}", "?", "{unseen ?}", "?", "{unseen flag ?}", "?",
		"{after place}", afterParts, "{for update}", "FOR UPDATE", "{skip locked}", "FOR UPDATE SKIP LOCKED", "{any lane}", "", "{retrying}", names.Table("messages"), "{by key}", "FORCE INDEX (retrying)", "{of key}", "FORCE INDEX (retrying)",
		"{by ready}", "FORCE INDEX (ready)", "{by id}", "FORCE INDEX (PRIMARY)",
		"{ready}", names.Table("messages"), "{by due}", "FORCE INDEX (due)", "{parked}", "m.state > 0 AND "+IsParked, "{waits}", "m.state IN (1, 2)", " {due order}", "",
		"{by death}", "FORCE INDEX (died_at)", "{latest death}", "d.died_at DESC",
		"{few}", "TRUE", "{state ?}", "?", "{listed}", names.replacer().Replace("JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) c STRAIGHT_JOIN {messages} m FORCE INDEX (PRIMARY) ON m.id = c.id"),
		"{strays}", names.replacer().Replace(straysByGroup),
		"{first due}", "LEAST("+firstDue(names, StateScheduled)+", "+firstDue(names, StateRetrying)+")",
		"{numbers ?}", "SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j",
		"{subject of m}", "CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0')))",
	)
}

// firstDue is the time of the first message of a state.
func firstDue(names Names, state int) string {
	return fmt.Sprintf("COALESCE((SELECT m.available_at FROM %s m FORCE INDEX (due) WHERE m.spool = s.id AND m.state = %d ORDER BY m.spool, m.state, m.available_at LIMIT 1), %s)", names.Table("messages"), state, never)
}
