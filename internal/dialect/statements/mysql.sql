-- Every statement of MySQL 8 and of MariaDB as it runs, but for the names of tables that a user has
-- changed and :name for each argument. What stands between "-- if" and "-- end" is left out unless
-- that is so. Times are microseconds since 1970 in UTC. Each statement locks only the rows that it
-- changes. What operators alone execute is in admin/internal/operatorsql.
--
-- FORCE INDEX: the server's statistics of a table that fills and empties are outdated. Without it
-- the server reads the whole table for each message to learn that no message waits. STRAIGHT_JOIN:
-- from a list to the messages by their primary key, never the other way round. MariaDB reads what
-- is in /*M! */, and MySQL what is in /*!80000 */.
--
-- @@in_transaction keeps a statement from running in a transaction of its own. In a deadlock the
-- server rolls back the whole transaction of a handler. If the handler ignores that, each of its
-- later statements would be committed by itself. Only MariaDB reports whether there is a
-- transaction.

-- What must be so before anything starts ----------------------------------------------------------

-- name: Unfit
-- Why no session like this one can be used, or an empty text. Each read says it again, without the
-- packet.
SELECT CASE WHEN @@max_allowed_packet < 16777216 THEN 'packet' ELSE CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END END

-- name: UnfitTables
-- Why the tables cannot be used, or an empty text.
SELECT COALESCE((SELECT MAX('earlier') FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'postbox_lanes' AND COLUMN_NAME = 'expires_at'), '')

-- name: Deployment
-- The name that is stored, empty where there is none.
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- name: NameDeployment
-- Stores it, unless there is one.
INSERT IGNORE INTO postbox_deployment (id, name) VALUES (1, :name)

-- name: Identity
-- That of these tables.
SELECT identity FROM postbox_identity WHERE id = 1

-- name: TryWrite
-- Changes nothing, and fails if the server is read-only.
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- name: Uptime
-- For how long the server has been up, and which server it is. MariaDB and MySQL have the same
-- table in different places. Each ignores the comment that is meant for the other one.
SELECT CAST(VARIABLE_VALUE AS SIGNED) * 1000000, CONCAT(@@hostname, ' ', @@port, ' ', @@server_id)
FROM /*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */
WHERE VARIABLE_NAME = 'Uptime'

-- name: IsMariaDB
-- 1 on MariaDB, which has Impatient, and tells a statement whether there is a transaction.
SELECT /*M! 1 + */ 0

-- name: Impatient
-- Begins a statement that must not wait long for a lock. MySQL has no such setting within a
-- statement, and waits for innodb_lock_wait_timeout.
/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */

-- name: ServerIn
-- An expression: the text by which the server that answers is found in a list of servers.
-- UUID_SHORT is a counter that begins at the second of the start, times 2^24. No session outlives
-- the server, so each session keeps what it found: then only others can count so far that it seems
-- to be the next second, which costs a read more. A DELETE must not read the creation time of the
-- table, as a fetch does: MariaDB 10.11 crashes on a DELETE that reads its catalog.
CONCAT('|', CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/')

-- name: MigrateLock
-- 1 when it is ours, until the session ends or gives it back.
SELECT COALESCE(GET_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', :name), 256), 1, 60), 3600), 0)

-- name: MigrateUnlock
SELECT COALESCE(RELEASE_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', :name), 256), 1, 60)), 0)

-- name: CreateVersion
-- The table of the versions of the schema, as goose has it.
CREATE TABLE IF NOT EXISTS postbox_version (
	id         SERIAL NOT NULL PRIMARY KEY,
	version_id BIGINT NOT NULL,
	is_applied BOOLEAN NOT NULL,
	tstamp     TIMESTAMP NULL DEFAULT NOW()
)

-- Spools, their members and lanes -----------------------------------------------------------------

-- name: RegisterSpool
INSERT IGNORE INTO postbox_spools (name) VALUES (:name)

-- name: FindSpool
-- Its id.
SELECT id FROM postbox_spools WHERE name = :name

-- name: FindNewSpool
-- Under REPEATABLE READ, only a locking read sees a row that is newer than the transaction.
-- RegisterSpool has taken this lock already when it found the row.
SELECT id FROM postbox_spools WHERE name = :name LOCK IN SHARE MODE

-- name: FillLanes
INSERT IGNORE INTO postbox_lanes (spool, lane)
SELECT :spool, q.lane FROM (
	WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
	SELECT lane FROM n) q

-- name: Join
-- Inserts or renews the member.
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES (:spool, :holder, :in_flight, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :ttl, :sharing)
ON DUPLICATE KEY UPDATE in_flight = VALUES(in_flight), expires_at = VALUES(expires_at), sharing = VALUES(sharing)

-- name: Renew
-- Also renews a lease that is over, as long as no other process has deleted the row.
UPDATE postbox_members SET in_flight = :in_flight, expires_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :ttl, sharing = :sharing WHERE spool = :spool AND holder = :holder

-- name: Leave
DELETE FROM postbox_members WHERE spool = :spool AND holder = :holder

-- name: ExpireMembers
DELETE FROM postbox_members WHERE spool = :spool AND expires_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- name: ReleaseAll
-- The lanes of a member whose lease is lost. Its process may still handle a message of one, and
-- crash. LIMIT keeps the search apart from the change, so that it locks nothing.
UPDATE (SELECT lane FROM postbox_lanes WHERE spool = :spool AND holder = :holder LIMIT 32) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = 1, l.holder = NULL
WHERE l.spool = :spool AND l.holder = :holder

-- name: FreeLanes
-- An UPDATE waits for locks, whatever its sub-selects say. With innodb_snapshot_isolation it also
-- waits for those of rows that it only passes over, such as a lane that a process has locked which
-- was cut off. So changes of lanes look up each row, and those of other members are locked first.
-- The members are those of the snapshot of the search. So a lane is locked only if no process has
-- taken it since: such a process may have joined since, too. Then it has another token.
SELECT lane, token FROM postbox_lanes WHERE spool = :spool AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool)) ORDER BY lane LIMIT :most

-- name: LockLanes
SELECT l.lane FROM JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]')) s
STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
WHERE l.spool = :spool AND l.token = s.token
FOR UPDATE /*!80000 OF l */ SKIP LOCKED

-- name: Acquire
UPDATE JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = CASE WHEN l.holder IS NULL THEN l.suspect ELSE 1 END, l.token = GREATEST(l.token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) + :later, l.holder = :holder
WHERE l.spool = :spool

-- name: Release
UPDATE JSON_TABLE(:lanes, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.holder = NULL
WHERE l.spool = :spool AND l.holder = :holder

-- name: Held
-- Lane, token and suspect of each.
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = :spool AND holder = :holder ORDER BY lane

-- name: HoldLane
SELECT 1 FROM postbox_lanes WHERE spool = :spool AND lane = :lane AND token = :token LOCK IN SHARE MODE

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
SELECT name, slot, token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), CASE WHEN holder = :holder THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = :spool ORDER BY name, slot

-- name: AddSlots
INSERT IGNORE INTO postbox_limits (spool, name, slot, token)
SELECT :spool, :name, f.n, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) FROM (SELECT j.n FROM JSON_TABLE(:slots, '$[*]' COLUMNS (n BIGINT PATH '$')) j) f

-- name: ChangeSlots
UPDATE postbox_limits SET holder = :holder, token = :token
WHERE spool = :spool AND name = :name AND slot IN (SELECT j.n FROM JSON_TABLE(:slots, '$[*]' COLUMNS (n BIGINT PATH '$')) j) AND token IN (SELECT j.n FROM JSON_TABLE(:tokens, '$[*]' COLUMNS (n BIGINT PATH '$')) j)

-- Messages are stored -----------------------------------------------------------------------------

-- name: Append
-- The attempts of the first row are 0: their value takes the lock of a row of postbox_writers, of
-- the current 25 ms, before ids are assigned to the rows. So such a row becomes free when its 25 ms
-- are over and the last transaction that locked it has ended. If it is missing, drainers never find
-- all rows free and read from 0. Each further row is one of AppendRow.
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES (:spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :delay END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :topic, :message_id, :key, :payload, :metadata, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0))

-- name: AppendRow
(:spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :delay END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :topic, :message_id, :key, :payload, :metadata, 0)

-- name: HoldWriter
-- The value for the attempts of the first row, where rows are written into the text.
COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0)

-- name: Now
-- The clock, where rows are written into the text.
TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- name: IngestClaims
-- Claims keys. If an open transaction has claimed one, it waits for it to end. The row is repeated.
INSERT IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- name: IngestClaimed
-- By the primary key. The argument is repeated.
SELECT claim_key FROM postbox_claims WHERE claim_key IN (:claim)

-- name: LockUniqueKey
-- Returns the newest id of the key as LAST_INSERT_ID.
INSERT INTO postbox_unique_keys (digest, spool, id, created_at) VALUES (:digest, :spool, LAST_INSERT_ID(0), 0)
ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)

-- name: FindOfUniqueKey
-- Whether the message of the key waits, in variables of the session, because a publisher only
-- executes statements and reads no results. The statements that change rows do not search the
-- messages: under REPEATABLE READ, such a search locks the gap where producers insert, if it finds
-- nothing.
--
-- Under REPEATABLE READ, it sees the snapshot of the transaction. If the snapshot does not contain
-- the newest id, the message is newer, and counts as one that waits. FOR UPDATE reads the newest
-- time of creation.
SELECT f.waits, CASE WHEN f.waits > 0 THEN LAST_INSERT_ID() END, (SELECT u.created_at FROM postbox_unique_keys u WHERE u.digest = :digest FOR UPDATE)
FROM (SELECT (SELECT COUNT(*) FROM postbox_unique_keys u STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool WHERE u.digest = :digest)
           + (SELECT COUNT(*) = 0 FROM postbox_unique_keys u WHERE u.digest = :digest AND u.id = LAST_INSERT_ID()) AS waits) f
INTO @postbox_waits, @postbox_id, @postbox_created

-- name: RemoveOfUniqueKey
-- Deletes the message that waits, unless it has failed: then others of its ordering key may wait
-- behind it, and drainers read those again when they settle the failed message. By another index
-- the server would read, and lock, all messages of the spool; it may prefer one if they are few.
-- Without an id it reads and locks nothing.
DELETE m FROM postbox_messages m FORCE INDEX (PRIMARY) WHERE m.id = @postbox_id AND m.created_at = @postbox_created AND m.spool = :spool AND m.state < 2

-- name: StoreUnique
-- A message that replaces another. INSERT … SELECT locks the counter of ids until it ends, and so
-- may deadlock with another one. So the next statement is only for a message that may be left out:
-- one that replaces another comes after a DELETE, which may lock a gap.
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES (:spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :delay END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :topic, :message_id, :key, :payload, :metadata, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0))

-- name: StoreUniqueIfNone
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
SELECT :spool, :lane, :state, :key_hash, CASE WHEN :due > 0 THEN :due ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :delay END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :topic, :message_id, :key, :payload, :metadata, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0) FROM DUAL WHERE @postbox_waits = 0

-- name: NoteUnique
UPDATE postbox_unique_keys SET id = LAST_INSERT_ID(), created_at = (SELECT m.created_at FROM postbox_messages m WHERE m.id = LAST_INSERT_ID())
WHERE digest = :digest
-- if none
  AND @postbox_waits = 0
-- end

-- Messages are read -------------------------------------------------------------------------------

-- name: FetchLane
-- Ready messages of a lane. A read has such a part for each lane, because MariaDB has no LATERAL,
-- or FetchUpTo for all of them, and then FetchDue, if that is needed, and FetchMeta, with UNION ALL
-- between. The server optimizes each part of a text each time that it executes the text, which
-- costs more than the few messages that most reads find. So a text has no part that is not needed.
-- FIND_IN_SET searches a short list for each message, which costs less than a derived table. The
-- server searches such a list from its start for each message, so a long one is in JSON.
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id > :after AND m.id <= :up_to
-- if few
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), :known) = 0)
-- end
-- if many
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
-- end
-- if excluded
  AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
-- end
-- if ordered
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(:held, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
-- end
ORDER BY m.id LIMIT :page)

-- name: FetchUpTo
-- Ready messages of all lanes up to an id. The server evaluates once for a part whether a message
-- with a key waits for another attempt, and then looks for none before each message.
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (PRIMARY)
WHERE m.id > :after AND m.id <= :up_to AND m.spool = :spool AND m.state = 0 AND FIND_IN_SET(m.lane, :lanes)
-- if few
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), :known) = 0)
-- end
-- if many
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
-- end
-- if excluded
  AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
-- end
-- if ordered
  AND (NOT EXISTS (SELECT 1 FROM postbox_messages c FORCE INDEX (retrying) WHERE c.spool = :spool AND c.state = 2 AND c.key_hash IS NOT NULL) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(:held, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
-- end
ORDER BY m.id)

-- name: FetchDue
-- Each state has a part of its own, which reads along the index as far as its limit. Of both states
-- together the server would read and sort all messages that are due.
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (due)
WHERE m.spool = :spool AND m.state = 2 AND m.available_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND FIND_IN_SET(m.lane, :lanes)
-- if few
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), :known) = 0)
-- end
-- if many
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
-- end
-- if excluded
  AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
-- end
-- if ordered
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(:held, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
-- end
ORDER BY m.available_at, m.id LIMIT :due)
UNION ALL
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= :inline THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (due)
WHERE m.spool = :spool AND m.state = 1 AND m.available_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND FIND_IN_SET(m.lane, :lanes)
-- if few
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), :known) = 0)
-- end
-- if many
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
-- end
-- if excluded
  AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
-- end
-- if ordered
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
-- end
-- if paused
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
-- end
-- if held
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(:held, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
-- end
ORDER BY m.available_at, m.id LIMIT :due)

-- name: FetchMeta
-- A row about the spool and the server. Transaction 0 stands for all running transactions, until
-- FreeWriters has shown that all transactions from before a mark have ended.
--
-- Each read checks why the reads of its session cannot be trusted, or why its writes are not kept,
-- because a session may be changed, and so may the server's default for new sessions.
--
-- MariaDB's catalog tells a drainer that a backup was restored while it runs: a table that was
-- created again has another creation time, and a table that was emptied and filled again has a
-- lower counter. MySQL caches such answers for a day, but reads begin at 0 there. The nodes of a
-- cluster have counters of their own.
--
-- The sum in the highest id keeps the server from beginning at the end of the table, where it would
-- pass over all messages that are removed and not purged yet, also those before :look_from.
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = :spool AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = :spool), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= :look_from), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- name: Sweep
-- The inner query is that of a fetch, with an upper bound.
SELECT c.lane, (
	SELECT m.id FROM postbox_messages m FORCE INDEX (ready)
	WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND m.id NOT IN (SELECT j.n FROM JSON_TABLE(:known, '$[*]' COLUMNS (n BIGINT PATH '$')) j) AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(:excluded, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
	  AND (:unordered OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
	  AND (NOT :paused OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(:held, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) AS id
FROM JSON_TABLE(:ranges, '$[*]' COLUMNS (lane INT PATH '$[0]', after BIGINT PATH '$[1]', up_to BIGINT PATH '$[2]')) c

-- name: LoadPayload
-- Payload and metadata of a message.
SELECT payload, metadata FROM postbox_messages WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id AND created_at = :created_at

-- name: FreeWriters
-- The rows that no transaction has locked. Outside a transaction the statement releases its locks
-- at once. It returns nothing on MySQL, and on a cluster, whose nodes do not see the locks of each
-- other.
SELECT id FROM postbox_writers WHERE /*M! @@wsrep_on = 0 AND */ /*!50700 0 = 1 AND */ id >= 0 FOR UPDATE SKIP LOCKED

-- Messages are settled ----------------------------------------------------------------------------

-- name: Find
-- "lock" locks the rows that no other transaction has locked. MySQL refuses to lock a list in JSON (3569),
-- and MariaDB has no words to leave it out, and ignores the comment.
SELECT m.id FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at
-- if lock
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
-- end

-- name: FindAsRead
-- The lane is in a subquery: otherwise its row would be locked too, or skipped while its lease is
-- renewed.
SELECT m.id FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most
  AND EXISTS (SELECT 1 FROM postbox_lanes l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)
-- if lock
FOR UPDATE /*!80000 OF m */ SKIP LOCKED
-- end

-- name: CountStarts
UPDATE JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts + 1
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most
  AND EXISTS (SELECT 1 FROM postbox_lanes l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)

-- name: TakeBackStarts
UPDATE JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts - 1
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND m.starts > 0

-- name: RemoveOne
-- One message, as a handler's transaction does. The server finds either row by its primary key
-- before it executes anything. A list would be a table of its own, which costs the server a third
-- of the statement. As in Remove, the row of the lane is locked, so the token is the one that is
-- committed last, and not that of the transaction's snapshot.
DELETE m FROM postbox_messages m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = m.lane AND l.token = :token
WHERE m.id = :id AND m.spool = :spool AND m.lane = :lane AND m.created_at = :created_at AND /*M! @@in_transaction = */ 1
-- if seen
  AND LOCATE(CONCAT('|', CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'), :servers) > 0
-- end

-- name: Remove
-- "seen" is a removal on a server of a list alone: see ServerIn.
DELETE m FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND /*M! @@in_transaction = */ 1
-- if seen
  AND LOCATE(CONCAT('|', CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'), :servers) > 0
-- end

-- name: Keep
-- Copies messages that are done to the history. Run it before the removal.
INSERT IGNORE INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, took, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), m.attempts + 1, s.took, l.holder
FROM JSON_TABLE(:refs, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', took BIGINT PATH '$[4]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = :spool AND m.lane = s.lane AND m.created_at = s.created_at AND /*M! @@in_transaction = */ 1

-- name: RetryFailed
-- An UPDATE locks the row of a lane also in a subquery, and the server goes on with an UPDATE that
-- its client has given up, so the leases could not be renewed. So what changes rows that were
-- locked as they were read does not look at the lane again, but for the removal of dead ones.
-- Errors are hexadecimal.
UPDATE JSON_TABLE(:failed, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.state = 2, m.available_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + s.delay, m.attempts = m.attempts + s.added, m.starts = m.starts - s.back
WHERE m.spool = :spool AND s.cause IS NULL AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most

-- name: BuryFailed
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))), CONVERT(UNHEX(s.error) USING utf8mb4), s.cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), m.attempts + 1
FROM JSON_TABLE(:failed, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = :spool AND s.cause IS NOT NULL AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most

-- name: NoteFailed
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
SELECT CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))), m.attempt, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), CONVERT(UNHEX(m.error) USING utf8mb4), :process
FROM JSON_TABLE(:failed, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) m WHERE m.attempt IS NOT NULL

-- name: InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (:subject, :attempt, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :error, :process)

-- name: LastAttempt
-- A requeue leaves an entry with attempt 0, so the last entry gives the number of attempts since
-- then.
SELECT attempt FROM postbox_failures WHERE subject = :subject ORDER BY id DESC LIMIT 1

-- name: InsertDeadLetter
-- What was not stored as a message: of an inbox, or without a consumer of a row of a source.
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (CASE WHEN :consumer = '' THEN 0 ELSE 1 END, :subject, :spool, :consumer, :topic, :message_id, :source, :carried_id, :key, :key_hash,
        :payload, :metadata, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :attempts, :error, :cause)

-- Claims ------------------------------------------------------------------------------------------

-- name: Claim
-- A second claim of the same key waits for the transaction of the first and then changes no row.
INSERT IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- name: FindClaim
-- 1, or no row.
SELECT 1 FROM postbox_claims WHERE claim_key = :claim

-- name: LockClaim
-- A second claim waits for the transaction of the first.
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE claimed_at = 0

-- name: RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = :claim

-- name: ClaimsPage
-- One row for any page size: the end of the page, its number of keys, and how many of them are old.
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > :after ORDER BY claim_key LIMIT :limit)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention THEN 1 ELSE 0 END), 0)
FROM p

-- name: PurgeClaims
-- Bounded by the two keys that ClaimsPage returned.
DELETE FROM postbox_claims WHERE claim_key > :after AND claim_key <= :up_to AND claimed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention

-- Chores ------------------------------------------------------------------------------------------

-- name: AddChore
INSERT IGNORE INTO postbox_chores (name) VALUES (:name)

-- name: TakeChore
UPDATE postbox_chores SET holder = :holder, expires_at = CASE WHEN :ttl > 0 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :ttl ELSE 0 END
WHERE name = :name AND (holder = :holder OR expires_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- name: ChoreCursor
-- Its progress.
SELECT progress FROM postbox_chores WHERE name = :name

-- name: SaveChore
UPDATE postbox_chores SET progress = :progress WHERE name = :name AND holder = :holder

-- name: PurgeDeadLetters
-- The oldest rows, in the order of an index.
DELETE FROM postbox_dead_letters WHERE spool = :spool AND died_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY died_at LIMIT :limit

-- name: PurgeOthers
DELETE FROM postbox_dead_letters WHERE spool IS NULL AND died_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY died_at LIMIT :limit

-- name: PurgeFailures
DELETE FROM postbox_failures WHERE failed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY failed_at LIMIT :limit

-- name: PurgeHistory
DELETE FROM postbox_history WHERE spool = :spool AND done_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY done_at LIMIT :limit

-- name: PurgeAudit
DELETE FROM postbox_audit WHERE acted_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY acted_at LIMIT :limit

-- name: PurgeReceipts
DELETE FROM postbox_receipts WHERE state = :state AND due_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :retention ORDER BY state, due_at, receipt_key LIMIT :limit

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
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - :age THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - :age) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > :after) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- name: UniqueKeysPage
SELECT u.digest, u.id, u.created_at, CASE WHEN NOT EXISTS (SELECT 1 FROM postbox_messages m FORCE INDEX (PRIMARY) WHERE m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool) THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > :after ORDER BY u.digest LIMIT :limit

-- name: RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = :digest AND id = :id AND created_at = :created_at

-- What operators see, and what they say -----------------------------------------------------------

-- name: Spools
-- Name, version, pause, settings, paused keys and paused topics of a spool, or with 0 of all.
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
FROM postbox_spools s
WHERE :spool = 0 OR s.id = :spool

-- name: Members
-- Spool, holder, in flight and end of the membership of each live member, of the spool or with 0 of
-- all.
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE :spool IN (0, spool) AND expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND sharing = 1
ORDER BY spool, holder

-- name: Clock
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- name: Fullness
-- Id and name of each spool, and 1 if it has a message; also ids without a row that messages name.
-- One snapshot, so that a message that moves from one spool to another meanwhile is in one of them.
-- With the LIMIT, the planner cannot make a join of it, which might read the whole table.
SELECT s.id, s.name, CASE WHEN (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) IS NULL THEN 0 ELSE 1 END
FROM postbox_spools s
UNION ALL
SELECT o.stray, NULL, 1
FROM (
	SELECT g.spool AS stray FROM (SELECT DISTINCT m.spool FROM postbox_messages m FORCE INDEX (ready)) g WHERE g.spool NOT IN (SELECT id FROM postbox_spools)) o
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
SELECT s.id, s.name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       CASE WHEN (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 0 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 1 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 1 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 2 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 2 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       LEAST(COALESCE((SELECT m.available_at FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state = 1 ORDER BY m.spool, m.state, m.available_at LIMIT 1), 9223372036854775807), COALESCE((SELECT m.available_at FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state = 2 ORDER BY m.spool, m.state, m.available_at LIMIT 1), 9223372036854775807)),
       COALESCE(CASE WHEN s.pause_ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN s.paused_at END, 9223372036854775807), s.batches
FROM (SELECT id, name, paused_at, pause_ends_at, batches FROM postbox_spools UNION ALL SELECT o.stray, NULL, NULL, 0, '' FROM (
	SELECT g.spool AS stray FROM (SELECT DISTINCT m.spool FROM postbox_messages m FORCE INDEX (ready)) g WHERE g.spool NOT IN (SELECT id FROM postbox_spools)) o WHERE o.stray IS NOT NULL) s
WHERE TRUE

-- name: SettingsOf
SELECT settings FROM postbox_spools WHERE id = :spool

-- name: PausedKeys
-- Key, since when, by whom, reason, end.
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = :spool ORDER BY paused_at, id

-- name: PausedTopics
-- Topic, since when, by whom, reason, end.
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = :spool AND ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ORDER BY paused_at, topic

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
INSERT IGNORE INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, took, process)
SELECT n.clock - :since, :spool, :topic, :message_id, :source, :carried_id, :key, :payload, :metadata, n.clock - :since, n.clock, 0, :omitted, :since, :process
FROM (SELECT CASE WHEN :clock > 0 THEN :clock ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END AS clock FROM postbox_claims WHERE claim_key = :claim ORDER BY claim_key LIMIT 1) n

-- name: RecordAct
INSERT IGNORE INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (:operation, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :actor, :action, :target, :subject, :filter, :affected, :note)

-- Receipts ----------------------------------------------------------------------------------------

-- name: AwaitReceipts
-- A receipt that came before is kept: the row of a message that another program published may be
-- older than what awaits it. The row is repeated for each receipt.
INSERT IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES (:key, 0, :topic, :message_id, :consumer, COALESCE(:sent, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :delay), COALESCE(:due, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + :until))

-- name: ChangeReceipt
UPDATE postbox_receipts SET state = :state, handled_at = :handled_at, received_at = CASE WHEN :handled_at IS NOT NULL THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END
WHERE receipt_key = :key AND state = :was

-- name: AddReceipt
INSERT IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (:key, 2, :topic, :message_id, :consumer, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), :handled_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- name: ReceiptPage
-- By the index on state and time. The rows of the last time of the page before are read again.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = :state AND due_at >= :due_at AND due_at <= (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) + :ahead AND (due_at > :due_at OR receipt_key > :key)
ORDER BY state, due_at, receipt_key
LIMIT :limit

-- name: ReceiptsOf
-- By the primary key, which begins with the message.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE receipt_key >= :first AND receipt_key <= :last AND message_id = :message_id
ORDER BY receipt_key
LIMIT :limit
