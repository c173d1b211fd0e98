-- Every statement of SQLite as it runs, but for the names of tables that a user has changed and
-- :name for each argument. What stands between "-- if" and "-- end" is left out unless that is so.
-- Times are microseconds since 1970 in UTC. What operators alone execute is in
-- admin/internal/operatorsql.
--
-- LIMIT … + 0: SQLite plans a statement again whenever the argument of a bare LIMIT changes, which
-- took more time than running it.

-- What must be so before anything starts ----------------------------------------------------------

-- name: Unfit
-- Why no session like this one can be used, or an empty text.
SELECT CASE WHEN timeout = 0 THEN 'busy timeout' ELSE '' END FROM pragma_busy_timeout

-- name: BesideWriter
-- Fails in a transaction that has the lock of all that write, and does no harm.
PRAGMA wal_checkpoint(PASSIVE)

-- name: UnfitTables
-- Why the tables cannot be used, or an empty text.
SELECT COALESCE((SELECT 'earlier' FROM pragma_table_info('postbox_lanes') WHERE name = 'expires_at'), '')

-- name: Deployment
-- The name that is stored, empty where there is none.
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- name: NameDeployment
-- Stores it, unless there is one.
INSERT OR IGNORE INTO postbox_deployment (id, name) VALUES (1, :name)

-- name: Identity
-- That of these tables.
SELECT identity FROM postbox_identity WHERE id = 1

-- name: TryWrite
-- Changes nothing, and fails if the server is read-only.
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- name: MakeWritable
-- Makes a session writable again that a statement has made read-only. The connection must not be
-- given up, because it may hold the whole database in memory.
PRAGMA query_only = 0

-- name: BeginAgain
-- Fails within a transaction, and begins one if there is none.
BEGIN

-- name: DatabaseFile
-- The path of the file, empty for a database in memory.
SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'

-- name: ServerIn
-- An expression: the highest id that was given to a message.
COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0)

-- name: CreateVersion
-- The table of the versions of the schema, as goose has it.
CREATE TABLE IF NOT EXISTS postbox_version (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	version_id INTEGER NOT NULL,
	is_applied INTEGER NOT NULL,
	tstamp     TIMESTAMP DEFAULT (datetime('now'))
)

-- Spools, their members and lanes -----------------------------------------------------------------

-- name: RegisterSpool
INSERT OR IGNORE INTO postbox_spools (name) VALUES (:name)

-- name: FindSpool
-- Its id.
SELECT id FROM postbox_spools WHERE name = :name

-- name: FillLanes
INSERT OR IGNORE INTO postbox_lanes (spool, lane)
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT :spool, lane FROM n

-- name: Join
-- Inserts or renews the member.
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES (:spool, :holder, :in_flight, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :ttl, :sharing)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = excluded.in_flight, expires_at = excluded.expires_at, sharing = excluded.sharing

-- name: Renew
-- Also renews a lease that is over, as long as no other process has deleted the row.
UPDATE postbox_members SET in_flight = :in_flight, expires_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :ttl, sharing = :sharing WHERE spool = :spool AND holder = :holder

-- name: Leave
DELETE FROM postbox_members WHERE spool = :spool AND holder = :holder

-- name: ExpireMembers
DELETE FROM postbox_members WHERE spool = :spool AND expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)

-- name: ReleaseAll
-- The lanes of a member whose lease is lost. Its process may still handle a message of one, and
-- crash.
UPDATE postbox_lanes SET holder = NULL, suspect = 1 WHERE spool = :spool AND holder = :holder

-- name: Acquire
UPDATE postbox_lanes SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = MAX(token, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :later, holder = :holder
WHERE spool = :spool AND lane IN (
	SELECT lane FROM postbox_lanes WHERE spool = :spool AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool)) ORDER BY lane LIMIT :most + 0)

-- name: Release
UPDATE postbox_lanes SET holder = NULL WHERE spool = :spool AND holder = :holder AND lane IN (SELECT value AS n FROM json_each(:lanes))

-- name: Held
-- Lane, token and suspect of each.
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = :spool AND holder = :holder ORDER BY lane

-- name: ClearSuspect
-- Removes the mark that Acquire sets on a lane that the last holder did not give back.
UPDATE postbox_lanes SET suspect = 0 WHERE spool = :spool AND lane = :lane AND token = :token

-- name: BlockedLanes
-- The lanes that are suspect and in which something stands behind a retry, of any key.
SELECT l.lane FROM postbox_lanes l
WHERE l.spool = :spool AND l.holder = :holder AND l.suspect = 1 AND EXISTS (
	SELECT 1 FROM postbox_messages r WHERE r.spool = l.spool AND r.state = 2 AND r.lane = l.lane AND r.key_hash IS NOT NULL AND EXISTS (
		SELECT 1 FROM postbox_messages m WHERE m.spool = l.spool AND m.state IN (0, 1, 2) AND m.lane = l.lane AND m.id > r.id))

-- name: Limits
-- A limit that all processes share is a few rows, each of which one statement changes by itself,
-- and only if its token is as it was read: of those that want the same, one gets it, and the others
-- read again. So no process holds a lock here, and one that is cut off holds up no other. A slot
-- whose holder is no member can be taken.
SELECT name, slot, token, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CASE WHEN holder = :holder THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = :spool ORDER BY name, slot

-- name: AddSlots
INSERT OR IGNORE INTO postbox_limits (spool, name, slot, token)
SELECT :spool, :name, f.n, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (SELECT value AS n FROM json_each(:slots)) f

-- name: ChangeSlots
UPDATE postbox_limits SET holder = :holder, token = :token
WHERE spool = :spool AND name = :name AND slot IN (SELECT value AS n FROM json_each(:slots)) AND token IN (SELECT value AS n FROM json_each(:tokens))

-- Messages are stored -----------------------------------------------------------------------------

-- name: Append
-- The row is repeated.
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
VALUES (:spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :delay END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :topic, :message_id, :key, :payload, :metadata)

-- name: IngestClaims
-- The row is repeated.
INSERT OR IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: IngestClaimed
-- By the primary key. The argument is repeated.
SELECT claim_key FROM postbox_claims WHERE claim_key IN (:claim)

-- name: RemoveOfUniqueKey
-- Deletes the message that waits, unless it has failed: then others of its ordering key may wait
-- behind it, and drainers read those again when they settle the failed message. There is no lock of
-- a key: the first statement that writes locks the database.
DELETE FROM postbox_messages
WHERE id = (SELECT u.id FROM postbox_unique_keys u WHERE u.digest = :digest)
  AND created_at = (SELECT u.created_at FROM postbox_unique_keys u WHERE u.digest = :digest)
  AND spool = :spool AND state < 2

-- name: StoreUnique
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :delay END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :topic, :message_id, :key, :payload, :metadata
-- if none
WHERE NOT EXISTS (SELECT 1 FROM postbox_unique_keys u JOIN postbox_messages m ON m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool WHERE u.digest = :digest)
-- end

-- name: NoteUnique
INSERT INTO postbox_unique_keys (digest, spool, id, created_at)
SELECT :digest, m.spool, m.id, m.created_at FROM postbox_messages m WHERE changes() > 0 AND m.id = last_insert_rowid()
ON CONFLICT (digest) DO UPDATE SET id = excluded.id, created_at = excluded.created_at

-- Messages are read -------------------------------------------------------------------------------

-- name: Fetch
-- Ready messages of each lane, messages that are due, and a row about the spool. There is one
-- writer at a time, so no invisible transaction can add messages, and each read is a watermark. All
-- lanes are read in one part, because the driver binds each argument by a search among all of them.
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline THEN m.payload END AS payload
FROM json_each(:cursors) c
CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(:known))
-- if excluded
  AND m.topic NOT IN (SELECT value FROM json_each(:excluded))
-- end
-- if ordered
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(:held)))
-- end
	ORDER BY m.id LIMIT :page + 0)
UNION ALL
SELECT * FROM (SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline THEN m.payload END AS payload
FROM postbox_messages m
WHERE m.spool = :spool AND m.state > 0 AND m.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.lane IN (SELECT value FROM json_each(:lanes))
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(:known))
-- if excluded
  AND m.topic NOT IN (SELECT value FROM json_each(:excluded))
-- end
-- if ordered
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(:held)))
-- end
ORDER BY m.available_at, m.id LIMIT :due + 0)
UNION ALL
SELECT -1, 1, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = :spool AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)))), 0, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = :spool), -1), '', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0), NULL, NULL

-- name: Sweep
-- The inner query is that of a fetch, with an upper bound.
SELECT c.value ->> 0, (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND m.id NOT IN (SELECT value FROM json_each(:known)) AND m.topic NOT IN (SELECT value FROM json_each(:excluded))
	  AND (:unordered OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
	  AND (NOT :paused OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(:held)))
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) AS id
FROM json_each(:ranges) c

-- name: LoadPayload
-- Payload and metadata of a message.
SELECT payload, metadata FROM postbox_messages WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id AND created_at = :created_at

-- Messages are settled ----------------------------------------------------------------------------

-- name: Find
SELECT m.id FROM json_each(:refs) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3

-- name: FindAsRead
-- A writing transaction locks the database.
SELECT m.id FROM json_each(:refs) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7

-- name: CountStarts
UPDATE postbox_messages SET starts = starts + 1 WHERE id IN (
	SELECT m.id FROM json_each(:refs) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7)

-- name: TakeBackStarts
UPDATE postbox_messages SET starts = starts - 1 WHERE starts > 0 AND id IN (
SELECT m.id FROM json_each(:refs) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)

-- name: Remove
-- "seen" is a removal in a file that has given at least as many ids as the process has seen.
DELETE FROM postbox_messages WHERE id IN (
	SELECT m.id FROM json_each(:refs) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)
-- if seen
  AND COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0) >= :given
-- end

-- name: Keep
-- Copies messages that are done to the history. Run it before the removal.
INSERT OR IGNORE INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, took, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.attempts + 1, s.value ->> 4, l.holder
FROM json_each(:refs) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
WHERE m.spool = :spool AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3

-- name: RetryFailed
-- For messages that are as they were read, and whose lane is held, as are the next two.
UPDATE postbox_messages SET state = 2, available_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + f.delay, attempts = attempts + f.added, starts = starts - f.back
FROM (
	SELECT m.id AS found, s.value ->> 'delay' AS delay, s.value ->> 'added' AS added, s.value ->> 'back' AS back
FROM json_each(:failed) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 'id'
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 'lane' AND l.token = s.value ->> 'token'
WHERE m.spool = :spool AND m.lane = s.value ->> 'lane' AND m.created_at = s.value ->> 'created_at' AND m.state = s.value ->> 'state'
  AND m.attempts = s.value ->> 'attempts' AND m.starts BETWEEN s.value ->> 'least' AND s.value ->> 'most'
  AND s.value ->> 'cause' IS NULL) f
WHERE id = f.found

-- name: BuryFailed
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)), s.value ->> 'error', s.value ->> 'cause', m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.attempts + 1
FROM json_each(:failed) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 'id'
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 'lane' AND l.token = s.value ->> 'token'
WHERE m.spool = :spool AND m.lane = s.value ->> 'lane' AND m.created_at = s.value ->> 'created_at' AND m.state = s.value ->> 'state'
  AND m.attempts = s.value ->> 'attempts' AND m.starts BETWEEN s.value ->> 'least' AND s.value ->> 'most'
  AND s.value ->> 'cause' IS NOT NULL

-- name: NoteFailed
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
SELECT unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)), m.attempt, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.error, :process
FROM (
	SELECT value ->> 'id' AS id, value ->> 'created_at' AS created_at, value ->> 'attempt' AS attempt, value ->> 'error' AS error
	FROM json_each(:failed)) m
WHERE m.attempt IS NOT NULL

-- name: InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (:subject, :attempt, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :error, :process)

-- name: LastAttempt
-- A requeue leaves an entry with attempt 0, so the last entry gives the number of attempts since
-- then.
SELECT attempt FROM postbox_failures WHERE subject = :subject ORDER BY id DESC LIMIT 1

-- name: InsertDeadLetter
-- What was not stored as a message: of an inbox, or without a consumer of a row of a source.
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (CASE WHEN :consumer = '' THEN 0 ELSE 1 END, :subject, :spool, :consumer, :topic, :message_id, :source, :carried_id, :key, :key_hash,
        :payload, :metadata, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), :attempts, :error, :cause)

-- Claims ------------------------------------------------------------------------------------------

-- name: Claim
-- A second claim of the same key waits for the transaction of the first and then changes no row.
INSERT OR IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: FindClaim
-- 1, or no row.
SELECT 1 FROM postbox_claims WHERE claim_key = :claim

-- name: LockClaim
-- A second claim waits for the transaction of the first.
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (claim_key) DO UPDATE SET claimed_at = 0

-- name: RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = :claim

-- name: ClaimsPage
-- One row for any page size: the end of the page, its number of keys, and how many of them are old.
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > :after ORDER BY claim_key LIMIT :limit)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention THEN 1 ELSE 0 END), 0)
FROM p

-- name: PurgeClaims
-- Bounded by the two keys that ClaimsPage returned.
DELETE FROM postbox_claims WHERE claim_key > :after AND claim_key <= :up_to AND claimed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention

-- Chores ------------------------------------------------------------------------------------------

-- name: AddChore
INSERT OR IGNORE INTO postbox_chores (name) VALUES (:name)

-- name: TakeChore
UPDATE postbox_chores SET holder = :holder, expires_at = CASE WHEN :ttl > 0 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :ttl ELSE 0 END
WHERE name = :name AND (holder = :holder OR expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: ChoreCursor
-- Its progress.
SELECT progress FROM postbox_chores WHERE name = :name

-- name: SaveChore
UPDATE postbox_chores SET progress = :progress WHERE name = :name AND holder = :holder

-- name: PurgeDeadLetters
-- The oldest rows, in the order of an index.
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool = :spool AND died_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY died_at LIMIT :limit + 0)

-- name: PurgeOthers
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool IS NULL AND died_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY died_at LIMIT :limit + 0)

-- name: PurgeFailures
DELETE FROM postbox_failures WHERE id IN (
	SELECT id FROM postbox_failures WHERE failed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY failed_at LIMIT :limit + 0)

-- name: PurgeHistory
DELETE FROM postbox_history WHERE (id, done_at) IN (
	SELECT id, done_at FROM postbox_history WHERE spool = :spool AND done_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY done_at LIMIT :limit + 0)

-- name: PurgeAudit
DELETE FROM postbox_audit WHERE id IN (
	SELECT id FROM postbox_audit WHERE acted_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY acted_at LIMIT :limit + 0)

-- name: PurgeReceipts
DELETE FROM postbox_receipts WHERE receipt_key IN (
	SELECT receipt_key FROM postbox_receipts WHERE state = :state AND due_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :retention ORDER BY state, due_at, receipt_key LIMIT :limit + 0)

-- name: NextOfLetters
-- The next spool that has dead letters, or NULL, its settings, and how long it keeps a history. The
-- end of a group is found in the index, whatever its size.
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_dead_letters WHERE spool > :after) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- name: NextOfHistory
-- The same for messages that are done.
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_history WHERE spool > :after) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- name: NextWaiting
-- CASE evaluates the cheapest condition first. It reads at most one message of each kind: the first
-- ready one by the index, and one that is due.
SELECT g.spool, s.name,
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - :age THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - :age) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > :after) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- name: UniqueKeysPage
SELECT u.digest, u.id, u.created_at, CASE WHEN NOT EXISTS (SELECT 1 FROM postbox_messages m WHERE m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool) THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > :after ORDER BY u.digest LIMIT :limit

-- name: RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = :digest AND id = :id AND created_at = :created_at

-- What operators see, and what they say -----------------------------------------------------------

-- name: Spools
-- Name, version, pause, settings, paused keys and paused topics of a spool, or with 0 of all.
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM postbox_spools s
WHERE :spool = 0 OR s.id = :spool

-- name: Members
-- Spool, holder, in flight and end of the membership of each live member, of the spool or with 0 of
-- all.
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE :spool IN (0, spool) AND expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND sharing = 1
ORDER BY spool, holder

-- name: Clock
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)

-- name: Fullness
-- Id and name of each spool, and 1 if it has a message; also ids without a row that messages name.
-- One snapshot, so that a message that moves from one spool to another meanwhile is in one of them.
-- With the LIMIT, the planner cannot make a join of it, which might read the whole table.
SELECT s.id, s.name, CASE WHEN (SELECT 1 FROM postbox_messages m WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) IS NULL THEN 0 ELSE 1 END
FROM postbox_spools s
UNION ALL
SELECT o.stray, NULL, 1
FROM (
	SELECT (SELECT MIN(m.spool) FROM postbox_messages m
	        WHERE m.spool > g.id AND m.spool < COALESCE((SELECT MIN(n.id) FROM postbox_spools n WHERE n.id > g.id), 9223372036854775807)) AS stray
	FROM (SELECT id FROM postbox_spools UNION ALL SELECT 0) g) o
WHERE o.stray IS NOT NULL

-- name: Ages
-- Each part reads a bounded number of rows or index entries, however many there are. Ids rise with
-- time, so the oldest message is among the first ones of each state and lane. Of transactions that
-- run at the same time one may get a lower id than another that wrote before, so the time may be
-- wrong by the duration of a transaction.
--
-- The order names all columns of the index, since MySQL would sort all messages of the state if it
-- left out those that are equal to a column of another table. Mostly there is none of a state,
-- which one look tells. With EXISTS, PostgreSQL would read the whole table for it. Spools without a
-- row that messages name are found in the gaps between the ids of spools, with a descent of the
-- index for each gap.
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT s.id, s.name, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       CASE WHEN (SELECT 1 FROM postbox_messages m WHERE m.spool = s.id AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m WHERE m.spool = s.id AND m.state = 0 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_messages m WHERE m.spool = s.id AND m.state = 1 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m WHERE m.spool = s.id AND m.state = 1 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_messages m WHERE m.spool = s.id AND m.state = 2 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m WHERE m.spool = s.id AND m.state = 2 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       COALESCE((SELECT m.available_at FROM postbox_messages m INDEXED BY postbox_messages_due WHERE m.spool = s.id AND m.state > 0 ORDER BY m.available_at LIMIT 1), 9223372036854775807),
       COALESCE(CASE WHEN s.pause_ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN s.paused_at END, 9223372036854775807), s.batches
FROM (SELECT id, name, paused_at, pause_ends_at, batches FROM postbox_spools UNION ALL SELECT o.stray, NULL, NULL, 0, '' FROM (
	SELECT (SELECT MIN(m.spool) FROM postbox_messages m
	        WHERE m.spool > g.id AND m.spool < COALESCE((SELECT MIN(n.id) FROM postbox_spools n WHERE n.id > g.id), 9223372036854775807)) AS stray
	FROM (SELECT id FROM postbox_spools UNION ALL SELECT 0) g) o WHERE o.stray IS NOT NULL) s
WHERE TRUE

-- name: SettingsOf
SELECT settings FROM postbox_spools WHERE id = :spool

-- name: PausedKeys
-- Key, since when, by whom, reason, end.
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = :spool ORDER BY paused_at, id

-- name: PausedTopics
-- Topic, since when, by whom, reason, end.
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = :spool AND ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY paused_at, topic

-- name: KeepHistory
UPDATE postbox_spools SET history = :history WHERE id = :spool AND history <> :history

-- name: KeepBatches
-- Not together with the history: the role of an inbox has no right to this column.
UPDATE postbox_spools SET batches = :rule WHERE id = :spool AND batches <> :rule

-- name: KeepReceived
-- Puts a message that an inbox has handled into the history. Its id is the time at which it was
-- received, as is its time of creation, so the key of the table keeps ids apart: a second message
-- of the same microsecond changes no row. The time is written once, since some databases read their
-- clock for each use.
--
-- The row is made only where the transaction has claimed the message. If the transaction has ended
-- without the knowledge of the driver, the claim is gone, and the statement keeps nothing.
INSERT OR IGNORE INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, took, process)
SELECT n.clock - :since, :spool, :topic, :message_id, :source, :carried_id, :key, :payload, :metadata, n.clock - :since, n.clock, 0, :omitted, :since, :process
FROM (SELECT CASE WHEN :clock > 0 THEN :clock ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) END AS clock FROM postbox_claims WHERE claim_key = :claim ORDER BY claim_key LIMIT 1) n

-- name: RecordAct
INSERT OR IGNORE INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (:operation, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :actor, :action, :target, :subject, :filter, :affected, :note)

-- Receipts ----------------------------------------------------------------------------------------

-- name: AwaitReceipts
-- A receipt that came before is kept: the row of a message that another program published may be
-- older than what awaits it. The row is repeated for each receipt.
INSERT OR IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES (:key, 0, :topic, :message_id, :consumer, COALESCE(:sent, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :delay), COALESCE(:due, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + :until))

-- name: ChangeReceipt
UPDATE postbox_receipts SET state = :state, handled_at = :handled_at, received_at = CASE WHEN :handled_at IS NOT NULL THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
WHERE receipt_key = :key AND state = :was

-- name: AddReceipt
INSERT OR IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (:key, 2, :topic, :message_id, :consumer, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :handled_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- name: ReceiptPage
-- By the index on state and time. The rows of the last time of the page before are read again.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = :state AND due_at >= :due_at AND due_at <= (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + :ahead AND (due_at > :due_at OR receipt_key > :key)
ORDER BY state, due_at, receipt_key
LIMIT :limit

-- name: ReceiptsOf
-- By the primary key, which begins with the message.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE receipt_key >= :first AND receipt_key <= :last AND message_id = :message_id
ORDER BY receipt_key
LIMIT :limit
