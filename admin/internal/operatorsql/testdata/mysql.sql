-- SearchEnd (spool, state, state, lane, state, lane, id, last_state, among)
WITH p AS (
	SELECT m.state, m.lane, m.id
	FROM postbox_messages m FORCE INDEX (ready)
	WHERE m.spool = ? AND (m.state > ? OR (m.state = ? AND m.lane > ?) OR (m.state = ? AND m.lane = ? AND m.id > ?)) AND m.state <= ?
	ORDER BY m.state, m.lane, m.id LIMIT ?)
SELECT (SELECT COUNT(*) FROM p), l.state, l.lane, l.id
FROM p l
ORDER BY l.state DESC, l.lane DESC, l.id DESC
LIMIT 1

-- SearchUpTo
SELECT 0 AS looked, m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	(SELECT COALESCE(OCTET_LENGTH(b.payload), 0) + OCTET_LENGTH(b.metadata) FROM postbox_messages b FORCE INDEX (PRIMARY) WHERE b.id = m.id) AS size,
	0 AS omitted, '' AS process
FROM postbox_messages m FORCE INDEX (ready)
WHERE m.spool = ? AND (m.state > ? OR (m.state = ? AND m.lane > ?) OR (m.state = ? AND m.lane = ? AND m.id > ?))
  AND (m.state < ? OR (m.state = ? AND m.lane < ?) OR (m.state = ? AND m.lane = ? AND m.id <= ?))
  AND m.available_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.due_from') AS SIGNED) AND m.available_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.due_before') AS SIGNED)
  AND m.attempts >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_attempts') AS SIGNED) AND m.created_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.created_from') AS SIGNED) AND m.created_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.created_before') AS SIGNED)
  AND (? = '' OR INSTR((SELECT f.error FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject DESC, f.id DESC LIMIT 1), ?) > 0)
  AND (? = '' OR m.topic = ?)
  AND (OCTET_LENGTH(?) = 0 OR m.ordering_key = ?)
  AND (OCTET_LENGTH(?) = 0 OR m.message_id = ?)
ORDER BY m.state, m.lane, m.id
LIMIT ?

-- RetryingOfKey
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size, 0 AS omitted, '' AS process
FROM (SELECT r.* FROM postbox_messages r FORCE INDEX (retrying) WHERE r.spool = ? AND r.state = 2 AND r.key_hash = ? ORDER BY r.id LIMIT 1000000000) m
WHERE (m.state > ? OR (m.state = ? AND m.lane > ?) OR (m.state = ? AND m.lane = ? AND m.id > ?))
  AND m.state <= ? AND m.available_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.due_from') AS SIGNED) AND m.available_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.due_before') AS SIGNED)
  AND m.attempts >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_attempts') AS SIGNED) AND m.created_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.created_from') AS SIGNED) AND m.created_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.created_before') AS SIGNED)
  AND (? = '' OR INSTR((SELECT f.error FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject DESC, f.id DESC LIMIT 1), ?) > 0)
  AND (? = '' OR m.topic = ?)
  AND (OCTET_LENGTH(?) = 0 OR m.ordering_key = ?)
  AND (OCTET_LENGTH(?) = 0 OR m.message_id = ?)
ORDER BY m.state, m.lane, m.id
LIMIT ?

-- Done (spool, last, last, last_id, done_from, done_before, topic, topic, key, key, message_id, message_id, most)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(OCTET_LENGTH(h.payload), 0) + OCTET_LENGTH(h.metadata) AS size, h.omitted, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = ? AND h.done_at <= ? AND (h.done_at < ? OR h.id < ?)
  AND h.done_at >= ? AND h.done_at < ?
  AND (? = '' OR h.topic = ?)
  AND (OCTET_LENGTH(?) = 0 OR h.ordering_key = ?)
  AND (OCTET_LENGTH(?) = 0 OR h.message_id = ?)
ORDER BY h.done_at DESC, h.id DESC
LIMIT ?

-- DoneInOrder (spool, last_id, last_id, last, done_from, done_before, topic, topic, key, key, message_id, message_id, most)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(OCTET_LENGTH(h.payload), 0) + OCTET_LENGTH(h.metadata) AS size, h.omitted, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = ? AND h.id >= ? AND (h.id > ? OR h.created_at > ?)
  AND h.done_at >= ? AND h.done_at < ?
  AND (? = '' OR h.topic = ?)
  AND (OCTET_LENGTH(?) = 0 OR h.ordering_key = ?)
  AND (OCTET_LENGTH(?) = 0 OR h.message_id = ?)
ORDER BY h.id, h.created_at
LIMIT ?

-- DeadLetters
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(OCTET_LENGTH(d.payload), 0) + OCTET_LENGTH(d.metadata) AS size
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > ? AND d.id <= ?
  AND (? = '' OR d.topic = ?)
  AND (? = '' OR d.consumer = ?)
  AND (? = '' OR COALESCE(s.name, '') = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.message_id = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.ordering_key = ?)
  AND (? = '' OR INSTR(d.error, ?) > 0)
  AND d.cause >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_cause') AS SIGNED) AND d.cause <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_cause') AS SIGNED)
  AND d.attempts >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_attempts') AS SIGNED) AND d.attempts <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_attempts') AS SIGNED)
  AND d.died_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_from') AS SIGNED) AND d.died_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_before') AS SIGNED)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> CAST(JSON_VALUE(CAST(? AS CHAR), '$.unwanted') AS SIGNED)
ORDER BY d.id
LIMIT ?

-- DeadLetterErrors
SELECT d.id, d.died_at, COALESCE(s.name, '') AS spool_name, d.consumer, d.topic, SUBSTR(d.error, 1, 512)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > ? AND d.id <= ?
  AND (? = '' OR d.topic = ?)
  AND (? = '' OR d.consumer = ?)
  AND (? = '' OR COALESCE(s.name, '') = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.message_id = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.ordering_key = ?)
  AND (? = '' OR INSTR(d.error, ?) > 0)
  AND d.cause >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_cause') AS SIGNED) AND d.cause <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_cause') AS SIGNED)
  AND d.attempts >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_attempts') AS SIGNED) AND d.attempts <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_attempts') AS SIGNED)
  AND d.died_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_from') AS SIGNED) AND d.died_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_before') AS SIGNED)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> CAST(JSON_VALUE(CAST(? AS CHAR), '$.unwanted') AS SIGNED)
ORDER BY d.id DESC
LIMIT ?

-- DeadLetters, newest first
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(OCTET_LENGTH(d.payload), 0) + OCTET_LENGTH(d.metadata) AS size
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > ? AND d.id <= ?
  AND (? = '' OR d.topic = ?)
  AND (? = '' OR d.consumer = ?)
  AND (? = '' OR COALESCE(s.name, '') = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.message_id = ?)
  AND (OCTET_LENGTH(?) = 0 OR d.ordering_key = ?)
  AND (? = '' OR INSTR(d.error, ?) > 0)
  AND d.cause >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_cause') AS SIGNED) AND d.cause <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_cause') AS SIGNED)
  AND d.attempts >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.least_attempts') AS SIGNED) AND d.attempts <= CAST(JSON_VALUE(CAST(? AS CHAR), '$.most_attempts') AS SIGNED)
  AND d.died_at >= CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_from') AS SIGNED) AND d.died_at < CAST(JSON_VALUE(CAST(? AS CHAR), '$.died_before') AS SIGNED)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> CAST(JSON_VALUE(CAST(? AS CHAR), '$.unwanted') AS SIGNED)
ORDER BY d.id DESC
LIMIT ?

-- LetterSearchEnd (after, among)
SELECT COUNT(*), COALESCE(MAX(p.id), 0) FROM (SELECT d.id FROM postbox_dead_letters d WHERE d.id > ? ORDER BY d.id LIMIT ?) p

-- LetterSearchEnd, newest first (up_to, among)
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT d.id FROM postbox_dead_letters d WHERE d.id <= ? ORDER BY d.id DESC LIMIT ?) p

-- StuckHeads
SELECT m.*, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM (
	SELECT * FROM (
	(SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size, 0 AS omitted, '' AS process, m.key_hash
	FROM postbox_messages m FORCE INDEX (ready)
	WHERE m.spool = ? AND m.lane = 0 AND m.id > CAST(JSON_VALUE(CAST(? AS CHAR), '$[0]') AS SIGNED) AND m.state = 2 AND m.key_hash IS NOT NULL AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b FORCE INDEX (retrying) WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
	ORDER BY m.id LIMIT ?) UNION ALL -- and so on, for each lane) h
	ORDER BY id LIMIT ?) m
ORDER BY m.id

-- ReadyHeads (ids, spool)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size, 0 AS omitted, '' AS process, m.key_hash, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) c STRAIGHT_JOIN postbox_messages m FORCE INDEX (PRIMARY) ON m.id = c.id
WHERE m.spool = ? AND m.state = 0

-- WaitingOfKeys
SELECT MIN(w.lane), w.wanted, MIN(w.id), COUNT(*)
FROM (
	(SELECT m.lane, m.id, CASE WHEN m.key_hash IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j) THEN m.ordering_key END AS wanted
	FROM postbox_messages m FORCE INDEX (ready)
	WHERE m.spool = ? AND m.lane = 0 AND m.id > CAST(JSON_VALUE(CAST(? AS CHAR), '$[0]') AS SIGNED) AND m.state = 0
	ORDER BY m.id LIMIT ?) UNION ALL -- and so on, for each lane) w
GROUP BY w.lane, w.wanted

-- CountStuck
SELECT ? AS spool,
       (SELECT COUNT(DISTINCT p.n) FROM (SELECT m.ordering_key AS n FROM postbox_messages m FORCE INDEX (retrying) WHERE m.spool = ? AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT ?) p),
       (SELECT COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - MIN(p.n), 0) FROM (SELECT COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject, f.id LIMIT 1), m.created_at) AS n FROM postbox_messages m FORCE INDEX (retrying) WHERE m.spool = ? AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT ?) p)

-- CountFewStuck
SELECT s.id,
       (SELECT COUNT(DISTINCT m.ordering_key) FROM postbox_messages m FORCE INDEX (retrying) WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL),
       (SELECT COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - MIN(COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = CONCAT(X'6D', UNHEX(LPAD(HEX(m.id), 16, '0')), UNHEX(LPAD(HEX(m.created_at), 16, '0'))) ORDER BY f.subject, f.id LIMIT 1), m.created_at)), 0) FROM postbox_messages m FORCE INDEX (retrying) WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL)
FROM postbox_spools s
WHERE s.id IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j)
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (retrying) WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT 1 OFFSET ?) IS NULL

-- CountUpTo
SELECT ? AS spool,
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = ? AND m.state = 0 ORDER BY m.lane, m.id LIMIT ?) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = ? AND m.state > 0 ORDER BY m.state, m.lane, m.id LIMIT ?) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = ? AND m.state IN (1, 2) AND m.available_at <= (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) LIMIT ?) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = ? AND m.state > 0 AND m.state = 2 AND m.available_at >= 4611686018427387904 ORDER BY m.available_at LIMIT ?) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_history m WHERE m.spool = ? ORDER BY m.done_at LIMIT ?) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.attempts > 0 THEN 1 ELSE 0 END AS n FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = ? AND m.state = 2 ORDER BY m.lane, m.id LIMIT ?) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = ? ORDER BY m.died_at DESC LIMIT ?) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = ? AND m.died_at > (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - 600000000 ORDER BY m.died_at DESC LIMIT ?) p)

-- CountFew
SELECT s.id,
       (SELECT COUNT(1) FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 0),
       (SELECT COUNT(1) FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state > 0),
       (SELECT COUNT(1) FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state IN (1, 2) AND m.available_at <= (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)))),
       (SELECT COUNT(1) FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state > 0 AND m.state = 2 AND m.available_at >= 4611686018427387904),
       (SELECT COUNT(1) FROM postbox_history m WHERE m.spool = s.id),
       (SELECT COALESCE(SUM(CASE WHEN m.attempts > 0 THEN 1 ELSE 0 END), 0) FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 2),
       (SELECT COALESCE(SUM(CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END), 0) FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = s.id),
       (SELECT COALESCE(SUM(CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END), 0) FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = s.id AND m.died_at > (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - 600000000)
FROM postbox_spools s
WHERE s.id IN (SELECT j.n FROM JSON_TABLE(?, '$[*]' COLUMNS (n BIGINT PATH '$')) j)
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 0 ORDER BY m.lane, m.id LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state > 0 ORDER BY m.state, m.lane, m.id LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state IN (1, 2) AND m.available_at <= (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (due) WHERE m.spool = s.id AND m.state > 0 AND m.state = 2 AND m.available_at >= 4611686018427387904 ORDER BY m.available_at LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_history m WHERE m.spool = s.id ORDER BY m.done_at LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_messages m FORCE INDEX (ready) WHERE m.spool = s.id AND m.state = 2 ORDER BY m.lane, m.id LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = s.id ORDER BY m.died_at DESC LIMIT 1 OFFSET ?) IS NULL
  AND (SELECT 1 FROM postbox_dead_letters m FORCE INDEX (died_at) WHERE m.spool = s.id AND m.died_at > (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - 600000000 ORDER BY m.died_at DESC LIMIT 1 OFFSET ?) IS NULL

-- PauseSpool (pause, by, reason, ends, spool, pause, pause, reason, ends)
UPDATE postbox_spools AS s SET paused_at = CASE WHEN ? = 1 THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END, paused_by = ?, pause_reason = ?, pause_ends_at = ?
WHERE s.id = ? AND (CASE WHEN CASE WHEN s.pause_ends_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN s.paused_at END IS NULL THEN 0 ELSE 1 END <> ? OR (? = 1 AND (s.pause_reason <> ? OR s.pause_ends_at <> ?)))

-- PauseKey (hash, key, by, reason, spool, hash, key)
INSERT INTO postbox_pauses (spool, key_hash, ordering_key, paused_at, paused_by, reason)
SELECT s.id, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ? FROM postbox_spools s
WHERE s.id = ? AND NOT EXISTS (SELECT 1 FROM postbox_pauses z WHERE z.spool = s.id AND z.key_hash = ? AND z.ordering_key = ?)

-- ResumeKey (spool, hash, key)
DELETE FROM postbox_pauses WHERE spool = ? AND key_hash = ? AND ordering_key = ?

-- ReplaceTopicPause (spool, topic, reason, ends)
DELETE FROM postbox_topic_pauses WHERE spool = ? AND (ends_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) OR (topic = ? AND (reason <> ? OR ends_at <> ?)))

-- PauseTopic (spool, topic, by, reason, ends)
INSERT IGNORE INTO postbox_topic_pauses (spool, topic, paused_at, paused_by, reason, ends_at) VALUES (?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?, ?, ?)

-- ResumeTopic (spool, topic)
DELETE FROM postbox_topic_pauses WHERE spool = ? AND topic = ?

-- Account
SELECT (SELECT COUNT(*) FROM postbox_messages m WHERE m.spool = s.id),
       (SELECT COUNT(*) FROM postbox_history h WHERE h.spool = s.id),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NULL),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NOT NULL)
FROM postbox_spools s
WHERE s.id = ?

-- LaneHolders
SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(w.expires_at, 0), l.suspect, CASE WHEN w.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END
FROM postbox_lanes l
LEFT JOIN postbox_members w ON w.spool = l.spool AND w.holder = l.holder
WHERE l.spool = ?
ORDER BY l.lane

-- ChangeSpool
UPDATE postbox_spools SET version = version + 1 WHERE id = ?

-- LockSettings
UPDATE postbox_spools SET settings = settings WHERE id = ?

-- SetSettings (settings, spool, settings)
UPDATE postbox_spools SET settings = ? WHERE id = ? AND settings <> ?

-- PendingMessage (spool, id)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(OCTET_LENGTH(m.payload), 0) + OCTET_LENGTH(m.metadata) AS size, 0 AS omitted, '' AS process, m.payload, m.metadata, '', m.message_id
FROM postbox_messages m
WHERE m.spool = ? AND m.id = ?

-- DoneMessage (spool, id, created_at, created_at)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(OCTET_LENGTH(h.payload), 0) + OCTET_LENGTH(h.metadata) AS size, h.omitted, COALESCE(h.process, ''), h.payload, h.metadata, COALESCE(h.source_topic, ''), COALESCE(h.carried_id, h.message_id)
FROM postbox_history h
WHERE h.spool = ? AND h.id = ? AND (? = 0 OR h.created_at = ?)
ORDER BY h.created_at DESC
LIMIT 1

-- LockListed (spool, state, lane, id)
SELECT m.state, m.lane, m.created_at, CASE WHEN m.state = 2 AND m.available_at >= 4611686018427387904 THEN 1 ELSE 0 END, CASE WHEN m.available_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN 1 ELSE 0 END, m.available_at, m.attempts
FROM postbox_messages m FORCE INDEX (PRIMARY)
WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ? FOR UPDATE

-- SetDue (at, at, spool, state, lane, id)
UPDATE postbox_messages FORCE INDEX (PRIMARY) SET
	attempts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE attempts END,
	starts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE starts END,
	available_at = CASE WHEN ? > 0 THEN ? WHEN available_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE available_at END
WHERE spool = ? AND state = ? AND lane = ? AND id = ?

-- BuryWaiting (subject, error, cause, spool, state, lane, id)
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, ?, ?, ?, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), m.attempts
FROM postbox_messages m
WHERE m.spool = ? AND m.state = ? AND m.lane = ? AND m.id = ?

-- RemoveMessage (spool, state, lane, id)
DELETE FROM postbox_messages WHERE spool = ? AND state = ? AND lane = ? AND id = ?

-- MessageOfUniqueKey
SELECT id, created_at FROM postbox_unique_keys WHERE digest = ?

-- DeadLetter
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(OCTET_LENGTH(d.payload), 0) + OCTET_LENGTH(d.metadata) AS size, d.payload, d.metadata, COALESCE(d.source_topic, ''), COALESCE(d.carried_id, d.message_id)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id = ?

-- LetterBehind (later)
SELECT d.id FROM postbox_dead_letters d ORDER BY d.id DESC LIMIT 1 OFFSET ?

-- DeleteDeadLetter (id, resolved)
DELETE FROM postbox_dead_letters WHERE id = ? AND (resolved_at IS NULL OR ? = 1)

-- Resolve (reason, id)
UPDATE postbox_dead_letters SET resolved_at = TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), resolution = ? WHERE id = ? AND resolved_at IS NULL

-- Failures (subject, most)
SELECT attempt, failed_at, error, process
FROM (SELECT id, attempt, failed_at, error, process FROM postbox_failures WHERE subject = ? ORDER BY id DESC LIMIT ?) f
ORDER BY id

-- AuditRows (before, least, from, until, actor, actor, action, action, target, target, most)
SELECT id, acted_at, actor, action, target, subject, filter, affected, note
FROM postbox_audit
WHERE id < ? AND id >= ? AND acted_at + 0 >= ? AND acted_at + 0 < ?
  AND (? = '' OR actor = ?)
  AND (? = '' OR action = ?)
  AND (? = '' OR target = ?)
ORDER BY id DESC
LIMIT ?

-- AuditSearchEnd (before, among)
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT id FROM postbox_audit WHERE id < ? ORDER BY id DESC LIMIT ?) p

-- InboxLetters
SELECT p.consumer, SUM(p.origin), SUM(CASE WHEN p.died_at > (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) - 600000000 THEN p.origin ELSE 0 END)
FROM (SELECT d.consumer, CASE WHEN d.resolved_at IS NULL THEN d.origin ELSE 0 END AS origin, d.died_at FROM postbox_dead_letters d FORCE INDEX (died_at) WHERE d.spool IS NULL ORDER BY d.died_at DESC LIMIT ?) p
GROUP BY p.consumer
