-- Find (refs, spool)
SELECT m.id FROM json_each(?) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3

-- LockAsRead (refs, spool)
SELECT m.id FROM json_each(?) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7

-- StandingAsRead (refs, spool)
SELECT m.id FROM json_each(?) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7

-- CountStarts (refs, spool)
UPDATE postbox_messages SET starts = starts + 1 WHERE id IN (
	SELECT m.id FROM json_each(?) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
	  AND m.state = s.value ->> 4 AND m.attempts = s.value ->> 5 AND m.starts BETWEEN s.value ->> 6 AND s.value ->> 7)

-- TakeBackStarts (refs, spool)
UPDATE postbox_messages SET starts = starts - 1 WHERE starts > 0 AND id IN (
SELECT m.id FROM json_each(?) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)

-- Release (spool, holder, lanes)
UPDATE postbox_lanes SET holder = NULL WHERE spool = ? AND holder = ? AND lane IN (SELECT value AS n FROM json_each(?))

-- Limits (holder, spool, spool)
SELECT name, slot, token, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CASE WHEN holder = ? THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = ?) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = ? ORDER BY name, slot

-- AddSlots (spool, name, slots)
INSERT OR IGNORE INTO postbox_limits (spool, name, slot, token)
SELECT ?, ?, f.n, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM (SELECT value AS n FROM json_each(?)) f

-- ChangeSlots (holder, token, spool, name, slots, tokens)
UPDATE postbox_limits SET holder = ?, token = ?
WHERE spool = ? AND name = ? AND slot IN (SELECT value AS n FROM json_each(?)) AND token IN (SELECT value AS n FROM json_each(?))

-- Unfit
SELECT CASE WHEN timeout = 0 THEN 'busy timeout' ELSE '' END FROM pragma_busy_timeout

-- BesideWriter
PRAGMA wal_checkpoint(PASSIVE)

-- UnfitTables
SELECT COALESCE((SELECT 'earlier' FROM pragma_table_info('postbox_lanes') WHERE name = 'expires_at'), '')

-- Deployment
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- NameDeployment
INSERT OR IGNORE INTO postbox_deployment (id, name) VALUES (1, ?) 

-- Identity
SELECT identity FROM postbox_identity WHERE id = 1

-- RegisterSpool
INSERT OR IGNORE INTO postbox_spools (name) VALUES (?) 

-- FindSpool
SELECT id FROM postbox_spools WHERE name = ?

-- FillLanes
INSERT OR IGNORE INTO postbox_lanes (spool, lane)
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT ?, lane FROM n

-- Join
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES (?, ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?, ?)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = excluded.in_flight, expires_at = excluded.expires_at, sharing = excluded.sharing

-- Leave
DELETE FROM postbox_members WHERE spool = ? AND holder = ?

-- ExpireMembers
DELETE FROM postbox_members WHERE spool = ? AND expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)

-- Renew
UPDATE postbox_members SET in_flight = ?, expires_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?, sharing = ? WHERE spool = ? AND holder = ?

-- ReleaseAll (spool, holder)
UPDATE postbox_lanes SET holder = NULL, suspect = 1 WHERE spool = ? AND holder = ?

-- Acquire (later, holder, spool, spool, spool, most)
UPDATE postbox_lanes SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = MAX(token, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + ?, holder = ?
WHERE spool = ? AND lane IN (
	SELECT lane FROM postbox_lanes WHERE spool = ? AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = ?)) ORDER BY lane LIMIT ? + 0)

-- Held
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = ? AND holder = ? ORDER BY lane

-- ClearSuspect
UPDATE postbox_lanes SET suspect = 0 WHERE spool = ? AND lane = ? AND token = ?

-- BlockedLanes (spool, holder)
SELECT l.lane FROM postbox_lanes l
WHERE l.spool = ? AND l.holder = ? AND l.suspect = 1 AND EXISTS (
	SELECT 1 FROM postbox_messages r WHERE r.spool = l.spool AND r.state = 2 AND r.lane = l.lane AND r.key_hash IS NOT NULL AND EXISTS (
		SELECT 1 FROM postbox_messages m WHERE m.spool = l.spool AND m.state IN (0, 1, 2) AND m.lane = l.lane AND m.id > r.id))

-- LoadPayload
SELECT payload, metadata FROM postbox_messages WHERE spool = ? AND state = ? AND lane = ? AND id = ? AND created_at = ?

-- RetryFailed (failed, spool)
UPDATE postbox_messages SET state = 2, available_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + f.delay, attempts = attempts + f.added, starts = starts - f.back
FROM (
	SELECT m.id AS found, s.value ->> 'delay' AS delay, s.value ->> 'added' AS added, s.value ->> 'back' AS back
FROM json_each(?) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 'id'
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 'lane' AND l.token = s.value ->> 'token'
WHERE m.spool = ? AND m.lane = s.value ->> 'lane' AND m.created_at = s.value ->> 'created_at' AND m.state = s.value ->> 'state'
  AND m.attempts = s.value ->> 'attempts' AND m.starts BETWEEN s.value ->> 'least' AND s.value ->> 'most'
  AND s.value ->> 'cause' IS NULL) f
WHERE id = f.found

-- BuryFailed (failed, spool)
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)), s.value ->> 'error', s.value ->> 'cause', m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.attempts + 1
FROM json_each(?) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 'id'
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 'lane' AND l.token = s.value ->> 'token'
WHERE m.spool = ? AND m.lane = s.value ->> 'lane' AND m.created_at = s.value ->> 'created_at' AND m.state = s.value ->> 'state'
  AND m.attempts = s.value ->> 'attempts' AND m.starts BETWEEN s.value ->> 'least' AND s.value ->> 'most'
  AND s.value ->> 'cause' IS NOT NULL

-- NoteFailed (process, failed)
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
SELECT unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)), m.attempt, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.error, ?
FROM (
	SELECT value ->> 'id' AS id, value ->> 'created_at' AS created_at, value ->> 'attempt' AS attempt, value ->> 'error' AS error
	FROM json_each(?)) m
WHERE m.attempt IS NOT NULL

-- InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?)

-- LastAttempt
SELECT attempt FROM postbox_failures WHERE subject = ? ORDER BY id DESC LIMIT 1

-- InsertDeadLetter (subject, spool, consumer, topic, message_id, source, carried_id, key, key_hash, payload, metadata, attempts, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?)

-- BuryRow (subject, spool, topic, message_id, payload, metadata, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (0, ?, ?, '', ?, ?, ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER), CAST(unixepoch('subsec') * 1000000 AS INTEGER), 0, ?, ?)

-- Claim
INSERT OR IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (?, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) 

-- FindClaim
SELECT 1 FROM postbox_claims WHERE claim_key = ?

-- LockClaim
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (?, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (claim_key) DO UPDATE SET claimed_at = 0

-- RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = ?

-- ClaimsPage
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > ? ORDER BY claim_key LIMIT ?)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? THEN 1 ELSE 0 END), 0)
FROM p

-- PurgeClaims
DELETE FROM postbox_claims WHERE claim_key > ? AND claim_key <= ? AND claimed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?

-- AddChore
INSERT OR IGNORE INTO postbox_chores (name) VALUES (?) 

-- TakeChore (holder, ttl, ttl, name, holder)
UPDATE postbox_chores SET holder = ?, expires_at = CASE WHEN ? > 0 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ? ELSE 0 END
WHERE name = ? AND (holder = ? OR expires_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- ChoreCursor
SELECT progress FROM postbox_chores WHERE name = ?

-- SaveChore
UPDATE postbox_chores SET progress = ? WHERE name = ? AND holder = ?

-- PurgeDeadLetters
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool = ? AND died_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY died_at LIMIT ? + 0)

-- PurgeOthers
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool IS NULL AND died_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY died_at LIMIT ? + 0)

-- PurgeFailures
DELETE FROM postbox_failures WHERE id IN (
	SELECT id FROM postbox_failures WHERE failed_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY failed_at LIMIT ? + 0)

-- PurgeHistory
DELETE FROM postbox_history WHERE (id, done_at) IN (
	SELECT id, done_at FROM postbox_history WHERE spool = ? AND done_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY done_at LIMIT ? + 0)

-- PurgeAudit
DELETE FROM postbox_audit WHERE id IN (
	SELECT id FROM postbox_audit WHERE acted_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY acted_at LIMIT ? + 0)

-- PurgeReceipts
DELETE FROM postbox_receipts WHERE receipt_key IN (
	SELECT receipt_key FROM postbox_receipts WHERE state = ? AND due_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? ORDER BY state, due_at, receipt_key LIMIT ? + 0)

-- NextOfLetters
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_dead_letters WHERE spool > ?) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- NextOfHistory
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_history WHERE spool > ?) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- NextWaiting (age, age, after)
SELECT g.spool, s.name,
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ? THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - ?) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > ?) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- Spools (spool, spool)
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER))
FROM postbox_spools s
WHERE ? = 0 OR s.id = ?

-- Members
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE ? IN (0, spool) AND expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND sharing = 1
ORDER BY spool, holder

-- Clock
SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)

-- Fullness
SELECT s.id, s.name, CASE WHEN (SELECT 1 FROM postbox_messages m WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) IS NULL THEN 0 ELSE 1 END
FROM postbox_spools s
UNION ALL
SELECT o.stray, NULL, 1
FROM (
	SELECT (SELECT MIN(m.spool) FROM postbox_messages m
	        WHERE m.spool > g.id AND m.spool < COALESCE((SELECT MIN(n.id) FROM postbox_spools n WHERE n.id > g.id), 9223372036854775807)) AS stray
	FROM (SELECT id FROM postbox_spools UNION ALL SELECT 0) g) o
WHERE o.stray IS NOT NULL

-- SettingsOf
SELECT settings FROM postbox_spools WHERE id = ?

-- PausedKeys
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = ? ORDER BY paused_at, id

-- PausedTopics
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = ? AND ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) ORDER BY paused_at, topic

-- KeepHistory (history, spool, history)
UPDATE postbox_spools SET history = ? WHERE id = ? AND history <> ?

-- KeepBatches (rule, spool, rule)
UPDATE postbox_spools SET batches = ? WHERE id = ? AND batches <> ?

-- KeepReceived (since, spool, topic, message_id, source, carried_id, key, payload, metadata, since, omitted, process, clock, clock, claim)
INSERT OR IGNORE INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, process)
SELECT n.clock - ?, ?, ?, ?, ?, ?, ?, ?, ?, n.clock - ?, n.clock, 0, ?, ?
FROM (SELECT CASE WHEN ? > 0 THEN ? ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) END AS clock FROM postbox_claims WHERE claim_key = ? ORDER BY claim_key LIMIT 1) n

-- ChangeReceipt (state, handled_at, handled_at, key, was)
UPDATE postbox_receipts SET state = ?, handled_at = ?, received_at = CASE WHEN ? IS NOT NULL THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END
WHERE receipt_key = ? AND state = ?

-- AddReceipt
INSERT OR IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (?, 2, ?, ?, ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) 

-- ReceiptPage
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = ? AND due_at >= ? AND due_at <= (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) + ? AND (due_at > ? OR receipt_key > ?)
ORDER BY state, due_at, receipt_key
LIMIT ?

-- ReceiptsOf
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE receipt_key >= ? AND receipt_key <= ? AND message_id = ?
ORDER BY receipt_key
LIMIT ?

-- AddToAct
UPDATE postbox_audit SET affected = affected + ?, note = ? WHERE operation = ?

-- RecordAct
INSERT OR IGNORE INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (?, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?, ?, ?, ?, ?) 

-- LockAct
UPDATE postbox_audit SET affected = affected WHERE operation = ?

-- NoteOfAct
SELECT note FROM postbox_audit WHERE operation = ?

-- Ages
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

-- UniqueKeysPage
SELECT u.digest, u.id, u.created_at, CASE WHEN NOT EXISTS (SELECT 1 FROM postbox_messages m WHERE m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool) THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > ? ORDER BY u.digest LIMIT ?

-- RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = ? AND id = ? AND created_at = ?

-- CreateVersion
CREATE TABLE IF NOT EXISTS postbox_version (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	version_id INTEGER NOT NULL,
	is_applied INTEGER NOT NULL,
	tstamp     TIMESTAMP DEFAULT (datetime('now'))
)

-- TryWrite
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- MakeWritable
PRAGMA query_only = 0

-- BeginAgain
BEGIN

-- DatabaseFile
SELECT COALESCE(file, '') FROM pragma_database_list WHERE name = 'main'

-- Append, one row
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
VALUES(?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ? END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?, ?, ?)

-- Append, two rows
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
VALUES(?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ? END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?, ?, ?), (?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ? END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?, ?, ?)

-- Ingest, two rows, claim
INSERT OR IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES(?, CAST(unixepoch('subsec') * 1000000 AS INTEGER)), (?, CAST(unixepoch('subsec') * 1000000 AS INTEGER))

-- Ingest, two rows, claimed
SELECT claim_key FROM postbox_claims WHERE claim_key IN (?, ?)

-- AppendUnique, replace false, state 0, statement 1
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT ?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ? END, CAST(unixepoch('subsec') * 1000000 AS INTEGER), ?, ?, ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM postbox_unique_keys u JOIN postbox_messages m ON m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool WHERE u.digest = ?)

-- AppendUnique, replace false, state 0, statement 2
INSERT INTO postbox_unique_keys (digest, spool, id, created_at)
SELECT ?, m.spool, m.id, m.created_at FROM postbox_messages m WHERE changes() > 0 AND m.id = last_insert_rowid()
ON CONFLICT (digest) DO UPDATE SET id = excluded.id, created_at = excluded.created_at

-- AppendUnique, replace true, state 0, statement 1
DELETE FROM postbox_messages
WHERE id = (SELECT u.id FROM postbox_unique_keys u WHERE u.digest = ?)
  AND created_at = (SELECT u.created_at FROM postbox_unique_keys u WHERE u.digest = ?)
  AND spool = ? AND state < 2

-- AwaitReceipts, one
INSERT OR IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES (?, 0, ?, ?, ?, COALESCE(?, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?), COALESCE(?, CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?)) 

-- Fetch, two lanes (inline, inline, cursors, spool, known, page, inline, inline, spool, lanes, known, due, spool, spool, spool, spool)
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM json_each(?) c
CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))
	  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
	ORDER BY m.id LIMIT ? + 0)
UNION ALL
SELECT * FROM (SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m
WHERE m.spool = ? AND m.state > 0 AND m.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.lane IN (SELECT value FROM json_each(?))
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.available_at, m.id LIMIT ? + 0)
UNION ALL
SELECT -1, 1, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)))), 0, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1), '', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0), NULL, NULL

-- Fetch, one lane, unordered (inline, inline, cursors, spool, known, page, inline, inline, spool, lanes, known, due, spool, spool, spool, spool)
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM json_each(?) c
CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))
	  AND TRUE
	ORDER BY m.id LIMIT ? + 0)
UNION ALL
SELECT * FROM (SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m
WHERE m.spool = ? AND m.state > 0 AND m.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.lane IN (SELECT value FROM json_each(?))
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))
  AND TRUE
ORDER BY m.available_at, m.id LIMIT ? + 0)
UNION ALL
SELECT -1, 1, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)))), 0, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1), '', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0), NULL, NULL

-- Fetch, one lane, excluded topics, paused and held keys (inline, inline, cursors, spool, known, excluded, held, page, inline, inline, spool, lanes, known, excluded, held, due, spool, spool, spool, spool)
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM json_each(?) c
CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))AND m.topic NOT IN (SELECT value FROM json_each(?))
	  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(?)))
	ORDER BY m.id LIMIT ? + 0)
UNION ALL
SELECT * FROM (SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m
WHERE m.spool = ? AND m.state > 0 AND m.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND m.lane IN (SELECT value FROM json_each(?))
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT value FROM json_each(?))AND m.topic NOT IN (SELECT value FROM json_each(?))
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(?)))
ORDER BY m.available_at, m.id LIMIT ? + 0)
UNION ALL
SELECT -1, 1, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER)))), 0, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1), '', NULL, NULL, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
       COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0), NULL, NULL

-- Sweep (spool, known, excluded, unordered, paused, held, ranges)
SELECT c.value ->> 0, (
	SELECT m.id FROM postbox_messages m
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.value ->> 0 AND m.id > c.value ->> 1 AND m.id <= c.value ->> 2
	  AND m.id NOT IN (SELECT value FROM json_each(?)) AND m.topic NOT IN (SELECT value FROM json_each(?))
	  AND (? OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
	  AND (NOT ? OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT value AS n FROM json_each(?)))
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) AS id
FROM json_each(?) c

-- Remove, one message (refs, spool)
DELETE FROM postbox_messages WHERE id IN (
	SELECT m.id FROM json_each(?) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3)

-- Remove, two messages, on a server that was seen (refs, spool)
DELETE FROM postbox_messages WHERE id IN (
	SELECT m.id FROM json_each(?) s
	CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
	CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
	WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3) AND COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'postbox_messages'), 0) >= ?

-- Keep (refs, spool)
INSERT OR IGNORE INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.attempts + 1, l.holder
FROM json_each(?) s
CROSS JOIN postbox_messages m ON m.id = s.value ->> 2
CROSS JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.value ->> 0 AND l.token = s.value ->> 1
WHERE m.spool = ? AND m.lane = s.value ->> 0 AND m.created_at = s.value ->> 3
