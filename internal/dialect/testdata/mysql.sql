-- Lock (refs, spool)
SELECT m.id FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at
FOR UPDATE /*!80000 OF m */ SKIP LOCKED

-- Find (refs, spool)
SELECT m.id FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at

-- LockAsRead (refs, spool)
SELECT m.id FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most
  AND EXISTS (SELECT 1 FROM postbox_lanes l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)
FOR UPDATE /*!80000 OF m */ SKIP LOCKED

-- StandingAsRead (refs, spool)
SELECT m.id FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most
  AND EXISTS (SELECT 1 FROM postbox_lanes l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)

-- CountStarts (refs, spool)
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]', state INT PATH '$[4]', attempts INT PATH '$[5]', least INT PATH '$[6]', most INT PATH '$[7]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts + 1
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most
  AND EXISTS (SELECT 1 FROM postbox_lanes l WHERE l.spool = m.spool AND l.lane = s.lane AND l.token = s.token)

-- TakeBackStarts (refs, spool)
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', id BIGINT PATH '$[2]', created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.starts = m.starts - 1
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND m.starts > 0

-- Release (lanes, spool, holder)
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.holder = NULL
WHERE l.spool = ? AND l.holder = ?

-- Limits (holder, spool, spool)
SELECT name, slot, token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), CASE WHEN holder = ? THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = ?) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = ? ORDER BY name, slot

-- AddSlots (spool, name, slots)
INSERT IGNORE INTO postbox_limits (spool, name, slot, token)
SELECT ?, ?, f.n, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) FROM (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j) f

-- ChangeSlots (holder, token, spool, name, slots, tokens)
UPDATE postbox_limits SET holder = ?, token = ?
WHERE spool = ? AND name = ? AND slot IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j) AND token IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j)

-- Unfit
SELECT CASE WHEN @@max_allowed_packet < 16777216 THEN 'packet' ELSE CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END END

-- UnfitTables
SELECT COALESCE((SELECT MAX('earlier') FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'postbox_lanes' AND COLUMN_NAME = 'expires_at'), '')

-- Deployment
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- NameDeployment
INSERT IGNORE INTO postbox_deployment (id, name) VALUES (1, ?) 

-- Identity
SELECT identity FROM postbox_identity WHERE id = 1

-- RegisterSpool
INSERT IGNORE INTO postbox_spools (name) VALUES (?) 

-- FindSpool
SELECT id FROM postbox_spools WHERE name = ?

-- FindNewSpool
SELECT id FROM postbox_spools WHERE name = ? LOCK IN SHARE MODE

-- FillLanes
INSERT IGNORE INTO postbox_lanes (spool, lane)
SELECT ?, q.lane FROM (
	WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
	SELECT lane FROM n) q

-- Join
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES (?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?, ?)
ON DUPLICATE KEY UPDATE in_flight = VALUES(in_flight), expires_at = VALUES(expires_at), sharing = VALUES(sharing)

-- Leave
DELETE FROM postbox_members WHERE spool = ? AND holder = ?

-- ExpireMembers
DELETE FROM postbox_members WHERE spool = ? AND expires_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- Renew
UPDATE postbox_members SET in_flight = ?, expires_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?, sharing = ? WHERE spool = ? AND holder = ?

-- ReleaseAll (spool, holder, spool, holder)
UPDATE (SELECT lane FROM postbox_lanes WHERE spool = ? AND holder = ? LIMIT 32) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = 1, l.holder = NULL
WHERE l.spool = ? AND l.holder = ?

-- Acquire (lanes, later, holder, spool)
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$')) s STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
SET l.suspect = CASE WHEN l.holder IS NULL THEN l.suspect ELSE 1 END, l.token = GREATEST(l.token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) + ?, l.holder = ?
WHERE l.spool = ?

-- Held
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = ? AND holder = ? ORDER BY lane

-- FreeLanes (spool, spool, most)
SELECT lane, token FROM postbox_lanes WHERE spool = ? AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = ?)) ORDER BY lane LIMIT ?

-- LockLanes (lanes, spool)
SELECT l.lane FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]')) s
STRAIGHT_JOIN postbox_lanes l FORCE INDEX (PRIMARY) ON l.lane = s.lane
WHERE l.spool = ? AND l.token = s.token
FOR UPDATE /*!80000 OF l */ SKIP LOCKED

-- HoldLane
SELECT 1 FROM postbox_lanes WHERE spool = ? AND lane = ? AND token = ? LOCK IN SHARE MODE

-- ClearSuspect
UPDATE postbox_lanes SET suspect = 0 WHERE spool = ? AND lane = ? AND token = ?

-- BlockedLanes (spool, holder)
SELECT l.lane FROM postbox_lanes l
WHERE l.spool = ? AND l.holder = ? AND l.suspect = 1 AND EXISTS (
	SELECT 1 FROM postbox_messages r WHERE r.spool = l.spool AND r.state = 2 AND r.lane = l.lane AND r.key_hash IS NOT NULL AND EXISTS (
		SELECT 1 FROM postbox_messages m WHERE m.spool = l.spool AND m.state IN (0, 1, 2) AND m.lane = l.lane AND m.id > r.id))

-- Impatient
/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ 

-- IsMariaDB
SELECT /*M! 1 + */ 0

-- LoadPayload
SELECT payload, metadata FROM postbox_messages WHERE spool = ? AND state = ? AND lane = ? AND id = ? AND created_at = ?

-- RetryFailed (failed, spool)
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
SET m.state = 2, m.available_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + s.delay, m.attempts = m.attempts + s.added, m.starts = m.starts - s.back
WHERE m.spool = ? AND s.cause IS NULL AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most

-- BuryFailed (failed, spool)
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))), CONVERT(UNHEX(s.error) USING utf8mb4), s.cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), m.attempts + 1
FROM JSON_TABLE(?, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
WHERE m.spool = ? AND s.cause IS NOT NULL AND m.lane = s.lane AND m.created_at = s.created_at AND m.state = s.state AND m.attempts = s.attempts
  AND m.starts BETWEEN s.least AND s.most

-- NoteFailed (process, failed)
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
SELECT CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))), m.attempt, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), CONVERT(UNHEX(m.error) USING utf8mb4), ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (state INT PATH '$.state', lane INT PATH '$.lane', token BIGINT PATH '$.token',
	id BIGINT PATH '$.id', created_at BIGINT PATH '$.created_at', attempts INT PATH '$.attempts', least INT PATH '$.least',
	most INT PATH '$.most', delay BIGINT PATH '$.delay', added INT PATH '$.added', back INT PATH '$.back', cause INT PATH '$.cause',
	attempt INT PATH '$.attempt', error VARCHAR(8192) PATH '$.error')) m WHERE m.attempt IS NOT NULL

-- FreeWriters
SELECT id FROM postbox_writers WHERE /*M! @@wsrep_on = 0 AND */ /*!50700 0 = 1 AND */ id >= 0 FOR UPDATE SKIP LOCKED

-- InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?)

-- LastAttempt
SELECT attempt FROM postbox_failures WHERE subject = ? ORDER BY id DESC LIMIT 1

-- InsertDeadLetter (subject, spool, consumer, topic, message_id, source, carried_id, key, key_hash, payload, metadata, attempts, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?)

-- BuryRow (subject, spool, topic, message_id, payload, metadata, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (0, ?, ?, '', ?, ?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), 0, ?, ?)

-- Claim
INSERT IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) 

-- FindClaim
SELECT 1 FROM postbox_claims WHERE claim_key = ?

-- LockClaim
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE claimed_at = 0

-- RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = ?

-- ClaimsPage
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > ? ORDER BY claim_key LIMIT ?)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? THEN 1 ELSE 0 END), 0)
FROM p

-- PurgeClaims
DELETE FROM postbox_claims WHERE claim_key > ? AND claim_key <= ? AND claimed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ?

-- AddChore
INSERT IGNORE INTO postbox_chores (name) VALUES (?) 

-- TakeChore (holder, ttl, ttl, name, holder)
UPDATE postbox_chores SET holder = ?, expires_at = CASE WHEN ? > 0 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ? ELSE 0 END
WHERE name = ? AND (holder = ? OR expires_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- ChoreCursor
SELECT progress FROM postbox_chores WHERE name = ?

-- SaveChore
UPDATE postbox_chores SET progress = ? WHERE name = ? AND holder = ?

-- PurgeDeadLetters
DELETE FROM postbox_dead_letters WHERE spool = ? AND died_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY died_at LIMIT ?

-- PurgeOthers
DELETE FROM postbox_dead_letters WHERE spool IS NULL AND died_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY died_at LIMIT ?

-- PurgeFailures
DELETE FROM postbox_failures WHERE failed_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY failed_at LIMIT ?

-- PurgeHistory
DELETE FROM postbox_history WHERE spool = ? AND done_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY done_at LIMIT ?

-- PurgeAudit
DELETE FROM postbox_audit WHERE acted_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY acted_at LIMIT ?

-- PurgeReceipts
DELETE FROM postbox_receipts WHERE state = ? AND due_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? ORDER BY state, due_at, receipt_key LIMIT ?

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
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - ? THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - ?) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > ?) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- Spools (spool, spool)
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))
FROM postbox_spools s
WHERE ? = 0 OR s.id = ?

-- Members
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE ? IN (0, spool) AND expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND sharing = 1
ORDER BY spool, holder

-- Clock
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))

-- Fullness
SELECT s.id, s.name, CASE WHEN (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) IS NULL THEN 0 ELSE 1 END
FROM postbox_spools s
UNION ALL
SELECT o.stray, NULL, 1
FROM (
	SELECT g.spool AS stray FROM (SELECT DISTINCT m.spool FROM postbox_messages m FORCE INDEX (ready)) g WHERE g.spool NOT IN (SELECT id FROM postbox_spools)) o
WHERE o.stray IS NOT NULL

-- SettingsOf
SELECT settings FROM postbox_spools WHERE id = ?

-- PausedKeys
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = ? ORDER BY paused_at, id

-- PausedTopics
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = ? AND ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ORDER BY paused_at, topic

-- KeepHistory (history, spool, history)
UPDATE postbox_spools SET history = ? WHERE id = ? AND history <> ?

-- KeepBatches (rule, spool, rule)
UPDATE postbox_spools SET batches = ? WHERE id = ? AND batches <> ?

-- KeepReceived (since, spool, topic, message_id, source, carried_id, key, payload, metadata, since, omitted, process, clock, clock, claim)
INSERT IGNORE INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, process)
SELECT n.clock - ?, ?, ?, ?, ?, ?, ?, ?, ?, n.clock - ?, n.clock, 0, ?, ?
FROM (SELECT CASE WHEN ? > 0 THEN ? ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END AS clock FROM postbox_claims WHERE claim_key = ? ORDER BY claim_key LIMIT 1) n

-- ChangeReceipt (state, handled_at, handled_at, key, was)
UPDATE postbox_receipts SET state = ?, handled_at = ?, received_at = CASE WHEN ? IS NOT NULL THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END
WHERE receipt_key = ? AND state = ?

-- AddReceipt
INSERT IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (?, 2, ?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) 

-- ReceiptPage
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = ? AND due_at >= ? AND due_at <= (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) + ? AND (due_at > ? OR receipt_key > ?)
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
INSERT IGNORE INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?, ?, ?, ?, ?) 

-- LockAct
UPDATE postbox_audit SET affected = affected WHERE operation = ?

-- NoteOfAct
SELECT note FROM postbox_audit WHERE operation = ?

-- Ages
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

-- UniqueKeysPage
SELECT u.digest, u.id, u.created_at, CASE WHEN NOT EXISTS (SELECT 1 FROM postbox_messages m FORCE INDEX (PRIMARY) WHERE m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool) THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > ? ORDER BY u.digest LIMIT ?

-- RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = ? AND id = ? AND created_at = ?

-- MigrateLock
SELECT COALESCE(GET_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', ?), 256), 1, 60), 3600), 0)

-- MigrateUnlock
SELECT COALESCE(RELEASE_LOCK(SUBSTRING(SHA2(CONCAT(DATABASE(), '/', ?), 256), 1, 60)), 0)

-- CreateVersion
CREATE TABLE IF NOT EXISTS postbox_version (
	id         SERIAL NOT NULL PRIMARY KEY,
	version_id BIGINT NOT NULL,
	is_applied BOOLEAN NOT NULL,
	tstamp     TIMESTAMP NULL DEFAULT NOW()
)

-- Uptime
SELECT CAST(VARIABLE_VALUE AS SIGNED) * 1000000, CONCAT(@@hostname, ' ', @@port, ' ', @@server_id)
FROM /*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */
WHERE VARIABLE_NAME = 'Uptime'

-- TryWrite
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- Append, one row
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES(?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ? END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?, ?, ?, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0))

-- Append, two rows
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES (1, 0, 0, NULL, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), X'', NULL, NULL, NULL, NULL, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0)), (1, 0, 0, NULL, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), X'', NULL, NULL, NULL, NULL, 0)

-- Ingest, two rows, claim
INSERT IGNORE INTO postbox_claims (claim_key, claimed_at) VALUES (NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))), (NULL, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))

-- Ingest, two rows, claimed
SELECT claim_key FROM postbox_claims WHERE claim_key IN (?, ?)

-- AppendUnique, replace false, state 0, statement 1
INSERT INTO postbox_unique_keys (digest, spool, id, created_at) VALUES (?, ?, LAST_INSERT_ID(0), 0)
ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)

-- AppendUnique, replace false, state 0, statement 2
SELECT f.waits, CASE WHEN f.waits > 0 THEN LAST_INSERT_ID() END, (SELECT u.created_at FROM postbox_unique_keys u WHERE u.digest = ? FOR UPDATE)
FROM (SELECT (SELECT COUNT(*) FROM postbox_unique_keys u STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = u.id AND m.created_at = u.created_at AND m.spool = u.spool WHERE u.digest = ?)
           + (SELECT COUNT(*) = 0 FROM postbox_unique_keys u WHERE u.digest = ? AND u.id = LAST_INSERT_ID()) AS waits) f
INTO @postbox_waits, @postbox_id, @postbox_created

-- AppendUnique, replace false, state 0, statement 3
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
SELECT ?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ? END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?, ?, ?, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0) FROM DUAL WHERE @postbox_waits = 0

-- AppendUnique, replace false, state 0, statement 4
UPDATE postbox_unique_keys SET id = LAST_INSERT_ID(), created_at = (SELECT m.created_at FROM postbox_messages m WHERE m.id = LAST_INSERT_ID())
WHERE digest = ? AND @postbox_waits = 0

-- AppendUnique, replace true, state 0, statement 3
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata, attempts)
VALUES (?, ?, ?, ?, CASE WHEN ? > 0 THEN ? ELSE TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ? END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?, ?, ?, COALESCE((SELECT 0 FROM postbox_writers w WHERE w.id = (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) DIV 25000) MOD 64 LOCK IN SHARE MODE), 0))

-- AppendUnique, replace true, state 0, statement 4
DELETE m FROM postbox_messages m FORCE INDEX (PRIMARY) WHERE m.id = @postbox_id AND m.created_at = @postbox_created AND m.spool = ? AND m.state < 2

-- AppendUnique, replace true, state 0, statement 5
UPDATE postbox_unique_keys SET id = LAST_INSERT_ID(), created_at = (SELECT m.created_at FROM postbox_messages m WHERE m.id = LAST_INSERT_ID())
WHERE digest = ?

-- AwaitReceipts, one
INSERT IGNORE INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES (?, 0, ?, ?, ?, COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?), COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?)) 

-- Fetch, two lanes
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ? AND m.id <= ?
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), ?) = 0)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.id LIMIT ?)
UNION ALL
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ? AND m.id <= ?
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), ?) = 0)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.id LIMIT ?)
UNION ALL
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= ?), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- Fetch, one lane, unordered
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ? AND m.id <= ?
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), ?) = 0)
  AND TRUE
ORDER BY m.id LIMIT ?)
UNION ALL
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= ?), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- Fetch, one lane, excluded topics, paused and held keys
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ? AND m.id <= ?
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), ?) = 0)AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(?, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))
  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
ORDER BY m.id LIMIT ?)
UNION ALL
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= ?), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- Fetch, two lanes up to an id
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (PRIMARY)
WHERE m.id > ? AND m.id <= ? AND m.spool = ? AND m.state = 0 AND FIND_IN_SET(m.lane, ?)
  AND (FIND_IN_SET(((m.created_at << 20) | (m.id & 1048575)), ?) = 0)
  AND (NOT EXISTS (SELECT 1 FROM postbox_messages c FORCE INDEX (retrying) WHERE c.spool = ? AND c.state = 2 AND c.key_hash IS NOT NULL) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
ORDER BY m.id)
UNION ALL
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= ?), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- Fetch, one lane, due messages, many known ones
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND m.state = 0 AND m.lane = ? AND m.id > ? AND m.id <= ?
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.id LIMIT ?)
UNION ALL
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (due)
WHERE m.spool = ? AND m.state = 2 AND m.available_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND FIND_IN_SET(m.lane, ?)
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.available_at, m.id LIMIT ?)
UNION ALL
(SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) <= ? THEN m.payload END AS payload
FROM postbox_messages m FORCE INDEX (due)
WHERE m.spool = ? AND m.state = 1 AND m.available_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND FIND_IN_SET(m.lane, ?)
  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT UNSIGNED PATH '$')) j)
  AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
ORDER BY m.available_at, m.id LIMIT ?)
UNION ALL
SELECT -1, 0, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = ? AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))))), 1, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = ? AND w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = ?), -1),
       CONCAT(CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'/*M! , COALESCE(t.CREATE_TIME, '') */), NULL, CASE WHEN @@autocommit = 0 THEN 'autocommit'
	WHEN /*M! @@tx_isolation */ /*!80000 @@transaction_isolation */ = 'READ-UNCOMMITTED' THEN 'uncommitted' ELSE '' END, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
       /*M! IF(@@wsrep_on, 0, COALESCE(CAST(t.AUTO_INCREMENT AS SIGNED), 0)) + */ 0, (SELECT MAX(e.id + 0) FROM postbox_messages e FORCE INDEX (PRIMARY) WHERE e.id >= ?), NULL
/*M! FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'postbox_messages' */

-- Sweep (spool, known, excluded, unordered, paused, held, ranges)
SELECT c.lane, (
	SELECT m.id FROM postbox_messages m FORCE INDEX (ready)
	WHERE m.spool = ? AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND m.id NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j) AND m.topic NOT IN (SELECT j.w FROM JSON_TABLE(?, '$[*]' COLUMNS (w VARCHAR(255) PATH '$')) j)
	  AND (? OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id)))
	  AND (NOT ? OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j))
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) AS id
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', after BIGINT PATH '$[1]', up_to BIGINT PATH '$[2]')) c

-- Remove, one message (token, id, spool, lane, created_at)
DELETE m FROM postbox_messages m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = m.lane AND l.token = ?
WHERE m.id = ? AND m.spool = ? AND m.lane = ? AND m.created_at = ? AND /*M! @@in_transaction = */ 1

-- Remove, two messages, on a server that was seen (refs, spool)
DELETE m FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND /*M! @@in_transaction = */ 1 AND LOCATE(CONCAT('|', CONCAT_WS(' ', @@hostname, @@port, @@server_id, COALESCE(@postbox_server, @postbox_server := UUID_SHORT() >> 24)), '/'), ?) > 0

-- Keep (refs, spool)
INSERT IGNORE INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), m.attempts + 1, l.holder
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', token BIGINT PATH '$[1]', id BIGINT PATH '$[2]',
	created_at BIGINT PATH '$[3]')) s
STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = s.id
STRAIGHT_JOIN postbox_lanes l ON l.spool = m.spool AND l.lane = s.lane AND l.token = s.token
WHERE m.spool = ? AND m.lane = s.lane AND m.created_at = s.created_at AND /*M! @@in_transaction = */ 1
