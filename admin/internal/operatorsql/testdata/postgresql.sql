-- Search (spool, state, lane, id, last_state, among, bounds, error, topic, key, message_id, most)
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM postbox_messages m
	WHERE m.spool = $1 AND (m.state, m.lane, m.id) > ($2, $3, $4) AND m.state <= $5
	ORDER BY m.state, m.lane, m.id
	LIMIT (SELECT $6::bigint))
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) FROM postbox_messages m WHERE m.spool = $1 AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted, '' AS process
FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END AS due
	FROM p m WHERE m.available_at >= (SELECT ($7::json ->> 'due_from')::bigint) AND m.available_at < (SELECT ($7::json ->> 'due_before')::bigint)
  AND m.attempts >= (SELECT ($7::json ->> 'least_attempts')::bigint) AND m.created_at >= (SELECT ($7::json ->> 'created_from')::bigint) AND m.created_at < (SELECT ($7::json ->> 'created_before')::bigint)
  AND ($8::text = '' OR strpos((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), $8) > 0)
  AND ($9::text = '' OR m.topic = $9)
  AND (octet_length($10::bytea) = 0 OR m.ordering_key = $10)
  AND (octet_length($11::bytea) = 0 OR m.message_id = $11) ORDER BY m.state, m.lane, m.id LIMIT $12) f
UNION ALL
SELECT l.* FROM (
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted, '' AS process
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l

-- RetryingOfKey (spool, hash, state, lane, id, last_state, bounds, error, topic, key, message_id, most)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, '' AS process
FROM (SELECT r.* FROM postbox_waiting r WHERE r.spool = $1 AND r.state = 2 AND r.key_hash = $2 ORDER BY r.id LIMIT 1000000000) m
WHERE (m.state, m.lane, m.id) > ($3, $4, $5)
  AND m.state <= $6 AND m.available_at >= (SELECT ($7::json ->> 'due_from')::bigint) AND m.available_at < (SELECT ($7::json ->> 'due_before')::bigint)
  AND m.attempts >= (SELECT ($7::json ->> 'least_attempts')::bigint) AND m.created_at >= (SELECT ($7::json ->> 'created_from')::bigint) AND m.created_at < (SELECT ($7::json ->> 'created_before')::bigint)
  AND ($8::text = '' OR strpos((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), $8) > 0)
  AND ($9::text = '' OR m.topic = $9)
  AND (octet_length($10::bytea) = 0 OR m.ordering_key = $10)
  AND (octet_length($11::bytea) = 0 OR m.message_id = $11)
ORDER BY m.state, m.lane, m.id
LIMIT $12

-- Done (spool, last, last_id, done_from, done_before, topic, key, message_id, most)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = $1 AND h.done_at <= $2 AND (h.done_at < $2 OR h.id < $3)
  AND h.done_at >= $4 AND h.done_at < $5
  AND ($6::text = '' OR h.topic = $6)
  AND (octet_length($7::bytea) = 0 OR h.ordering_key = $7)
  AND (octet_length($8::bytea) = 0 OR h.message_id = $8)
ORDER BY h.done_at DESC, h.id DESC
LIMIT $9

-- DoneInOrder (spool, last_id, last, done_from, done_before, topic, key, message_id, most)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = $1 AND h.id >= $2 AND (h.id > $2 OR h.created_at > $3)
  AND h.done_at >= $4 AND h.done_at < $5
  AND ($6::text = '' OR h.topic = $6)
  AND (octet_length($7::bytea) = 0 OR h.ordering_key = $7)
  AND (octet_length($8::bytea) = 0 OR h.message_id = $8)
ORDER BY h.id, h.created_at
LIMIT $9

-- DeadLetters (after, up_to, topic, consumer, spool, message_id, key, error, bounds, most)
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(octet_length(d.payload), 0) + octet_length(d.metadata) AS size
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > (SELECT $1::bigint) AND d.id <= (SELECT $2::bigint)
  AND ($3::text = '' OR d.topic = $3)
  AND ($4::text = '' OR d.consumer = $4)
  AND ($5::text = '' OR COALESCE(s.name, '') = $5)
  AND (octet_length($6::bytea) = 0 OR d.message_id = $6)
  AND (octet_length($7::bytea) = 0 OR d.ordering_key = $7)
  AND ($8::text = '' OR strpos(d.error, $8) > 0)
  AND d.cause >= (SELECT ($9::json ->> 'least_cause')::bigint) AND d.cause <= (SELECT ($9::json ->> 'most_cause')::bigint)
  AND d.attempts >= (SELECT ($9::json ->> 'least_attempts')::bigint) AND d.attempts <= (SELECT ($9::json ->> 'most_attempts')::bigint)
  AND d.died_at >= (SELECT ($9::json ->> 'died_from')::bigint) AND d.died_at < (SELECT ($9::json ->> 'died_before')::bigint)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> (SELECT ($9::json ->> 'unwanted')::bigint)
ORDER BY d.id
LIMIT $10

-- DeadLetterErrors (after, up_to, topic, consumer, spool, message_id, key, error, bounds, most)
SELECT d.id, d.died_at, COALESCE(s.name, '') AS spool_name, d.consumer, d.topic, SUBSTR(d.error, 1, 512)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > (SELECT $1::bigint) AND d.id <= (SELECT $2::bigint)
  AND ($3::text = '' OR d.topic = $3)
  AND ($4::text = '' OR d.consumer = $4)
  AND ($5::text = '' OR COALESCE(s.name, '') = $5)
  AND (octet_length($6::bytea) = 0 OR d.message_id = $6)
  AND (octet_length($7::bytea) = 0 OR d.ordering_key = $7)
  AND ($8::text = '' OR strpos(d.error, $8) > 0)
  AND d.cause >= (SELECT ($9::json ->> 'least_cause')::bigint) AND d.cause <= (SELECT ($9::json ->> 'most_cause')::bigint)
  AND d.attempts >= (SELECT ($9::json ->> 'least_attempts')::bigint) AND d.attempts <= (SELECT ($9::json ->> 'most_attempts')::bigint)
  AND d.died_at >= (SELECT ($9::json ->> 'died_from')::bigint) AND d.died_at < (SELECT ($9::json ->> 'died_before')::bigint)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> (SELECT ($9::json ->> 'unwanted')::bigint)
ORDER BY d.id DESC
LIMIT $10

-- DeadLetters, newest first (after, up_to, topic, consumer, spool, message_id, key, error, bounds, most)
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(octet_length(d.payload), 0) + octet_length(d.metadata) AS size
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > (SELECT $1::bigint) AND d.id <= (SELECT $2::bigint)
  AND ($3::text = '' OR d.topic = $3)
  AND ($4::text = '' OR d.consumer = $4)
  AND ($5::text = '' OR COALESCE(s.name, '') = $5)
  AND (octet_length($6::bytea) = 0 OR d.message_id = $6)
  AND (octet_length($7::bytea) = 0 OR d.ordering_key = $7)
  AND ($8::text = '' OR strpos(d.error, $8) > 0)
  AND d.cause >= (SELECT ($9::json ->> 'least_cause')::bigint) AND d.cause <= (SELECT ($9::json ->> 'most_cause')::bigint)
  AND d.attempts >= (SELECT ($9::json ->> 'least_attempts')::bigint) AND d.attempts <= (SELECT ($9::json ->> 'most_attempts')::bigint)
  AND d.died_at >= (SELECT ($9::json ->> 'died_from')::bigint) AND d.died_at < (SELECT ($9::json ->> 'died_before')::bigint)
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> (SELECT ($9::json ->> 'unwanted')::bigint)
ORDER BY d.id DESC
LIMIT $10

-- LetterSearchEnd (after, among)
SELECT COUNT(*), COALESCE(MAX(p.id), 0) FROM (SELECT d.id FROM postbox_dead_letters d WHERE d.id > $1 ORDER BY d.id LIMIT (SELECT $2::bigint)) p

-- LetterSearchEnd, newest first (up_to, among)
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT d.id FROM postbox_dead_letters d WHERE d.id <= $1 ORDER BY d.id DESC LIMIT (SELECT $2::bigint)) p

-- StuckHeads (after, spool, most)
SELECT m.*, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM (
	SELECT * FROM (
	SELECT r.* FROM unnest($1::bigint[]) WITH ORDINALITY AS c(after, n)
	CROSS JOIN LATERAL (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, '' AS process, m.key_hash
	FROM postbox_waiting m
	WHERE m.spool = $2 AND m.lane = (c.n - 1)::smallint AND m.id > c.after AND m.state = 2 AND m.key_hash IS NOT NULL AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
	ORDER BY m.id LIMIT $3::bigint) r) h
	ORDER BY id LIMIT $3) m
ORDER BY m.id

-- ReadyHeads (lanes, ids, spool)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, '' AS process, m.key_hash, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM unnest($1::smallint[], $2::bigint[]) AS c(lane, id)
CROSS JOIN LATERAL (
	SELECT * FROM ONLY postbox_messages m
	WHERE m.spool = $3 AND m.state = 0 AND m.lane = c.lane AND m.id = c.id
	LIMIT 1) m
WHERE m.spool = $3 AND m.state = 0

-- WaitingOfKeys (after, keys, spool, most)
SELECT MIN(w.lane), w.wanted, MIN(w.id), COUNT(*)
FROM (
	SELECT r.* FROM unnest($1::bigint[]) WITH ORDINALITY AS c(after, n)
	CROSS JOIN LATERAL (
	SELECT m.lane, m.id, CASE WHEN m.key_hash IN (SELECT unnest($2::bigint[]) AS n) THEN m.ordering_key END AS wanted
	FROM ONLY postbox_messages m
	WHERE m.spool = $3 AND m.lane = (c.n - 1)::smallint AND m.id > c.after AND m.state = 0
	ORDER BY m.id LIMIT $4::bigint) r) w
GROUP BY w.lane, w.wanted

-- CountStuck
SELECT s.id AS spool,
       (SELECT COUNT(DISTINCT p.n) FROM (SELECT m.ordering_key AS n FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT (SELECT $1::bigint)) p),
       (SELECT COALESCE((date_part('epoch', clock_timestamp()) * 1000000)::bigint - MIN(p.n), 0) FROM (SELECT COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject, f.id LIMIT 1), m.created_at) AS n FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT (SELECT $2::bigint)) p)
FROM unnest($3::bigint[]) AS s(id)

-- CountUpTo
SELECT s.id AS spool,
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM ONLY postbox_messages m WHERE m.spool = s.id AND m.state = 0 ORDER BY m.lane, m.id LIMIT (SELECT $1::bigint)) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_waiting m WHERE m.spool = s.id AND m.state > 0 ORDER BY m.state, m.lane, m.id LIMIT (SELECT $2::bigint)) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_waiting m WHERE m.spool = s.id AND TRUE AND m.available_at <= (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) ORDER BY m.available_at LIMIT (SELECT $3::bigint)) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_waiting m WHERE m.spool = s.id AND m.available_at >= 4611686018427387904 ORDER BY m.available_at LIMIT (SELECT $4::bigint)) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_history m WHERE m.spool = s.id ORDER BY m.done_at LIMIT (SELECT $5::bigint)) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.attempts > 0 THEN 1 ELSE 0 END AS n FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 ORDER BY m.lane, m.id LIMIT (SELECT $6::bigint)) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m WHERE m.spool = s.id ORDER BY m.died_at DESC LIMIT (SELECT $7::bigint)) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m WHERE m.spool = s.id AND m.died_at > (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - 600000000 ORDER BY m.died_at DESC LIMIT (SELECT $8::bigint)) p)
FROM unnest($9::bigint[]) AS s(id)

-- PauseSpool (pause, by, reason, ends, spool)
UPDATE postbox_spools AS s SET paused_at = CASE WHEN $1 = 1 THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint END, paused_by = $2, pause_reason = $3, pause_ends_at = $4
WHERE s.id = $5 AND (CASE WHEN CASE WHEN s.pause_ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN s.paused_at END IS NULL THEN 0 ELSE 1 END <> $1 OR ($1 = 1 AND (s.pause_reason <> $3 OR s.pause_ends_at <> $4)))

-- PauseKey (hash, key, by, reason, spool)
INSERT INTO postbox_pauses (spool, key_hash, ordering_key, paused_at, paused_by, reason)
SELECT s.id, $1::bigint, $2::bytea, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $3::text, $4::text FROM postbox_spools s
WHERE s.id = $5 AND NOT EXISTS (SELECT 1 FROM postbox_pauses z WHERE z.spool = s.id AND z.key_hash = $1 AND z.ordering_key = $2)

-- ResumeKey (spool, hash, key)
DELETE FROM postbox_pauses WHERE spool = $1 AND key_hash = $2 AND ordering_key = $3

-- ReplaceTopicPause (spool, topic, reason, ends)
DELETE FROM postbox_topic_pauses WHERE spool = $1 AND (ends_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint OR (topic = $2 AND (reason <> $3 OR ends_at <> $4)))

-- PauseTopic (spool, topic, by, reason, ends)
INSERT INTO postbox_topic_pauses (spool, topic, paused_at, paused_by, reason, ends_at) VALUES ($1, $2, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $3, $4, $5) ON CONFLICT DO NOTHING

-- ResumeTopic (spool, topic)
DELETE FROM postbox_topic_pauses WHERE spool = $1 AND topic = $2

-- Account
SELECT (SELECT COUNT(*) FROM postbox_messages m WHERE m.spool = s.id),
       (SELECT COUNT(*) FROM postbox_history h WHERE h.spool = s.id),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NULL),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NOT NULL)
FROM postbox_spools s
WHERE s.id = $1

-- LaneHolders
SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(w.expires_at, 0), l.suspect, CASE WHEN w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN 1 ELSE 0 END
FROM postbox_lanes l
LEFT JOIN postbox_members w ON w.spool = l.spool AND w.holder = l.holder
WHERE l.spool = $1
ORDER BY l.lane

-- ChangeSpool
UPDATE postbox_spools SET version = version + 1 WHERE id = $1

-- LockSettings
UPDATE postbox_spools SET settings = settings WHERE id = $1

-- SetSettings (settings, spool)
UPDATE postbox_spools SET settings = $1 WHERE id = $2 AND settings <> $1

-- PendingMessage (spool, id)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, '' AS process, m.payload, m.metadata, '', m.message_id
FROM postbox_messages m
WHERE m.spool = $1 AND m.id = $2
  AND m.state IN (0, 1, 2)
  AND m.lane = ANY(ARRAY(SELECT generate_series(0, 31)::smallint))

-- DoneMessage (spool, id, created_at)
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, COALESCE(h.process, ''), h.payload, h.metadata, COALESCE(h.source_topic, ''), COALESCE(h.carried_id, h.message_id)
FROM postbox_history h
WHERE h.spool = $1 AND h.id = $2 AND ($3::bigint = 0 OR h.created_at = $3)
ORDER BY h.created_at DESC
LIMIT 1

-- LockListed (spool, state, lane, id)
SELECT m.state, m.lane, m.created_at, CASE WHEN m.state = 2 AND m.available_at >= 4611686018427387904 THEN 1 ELSE 0 END, CASE WHEN m.available_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN 1 ELSE 0 END, m.available_at, m.attempts
FROM postbox_messages m
WHERE m.spool = $1 AND m.state = $2 AND m.lane = $3 AND m.id = $4 FOR UPDATE

-- SetDue (at, spool, state, lane, id)
UPDATE postbox_messages SET
	attempts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE attempts END,
	starts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE starts END,
	available_at = CASE WHEN $1::bigint > 0 THEN $1::bigint WHEN available_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint ELSE available_at END
WHERE spool = $2 AND state = $3 AND lane = $4 AND id = $5

-- BuryWaiting (subject, error, cause, spool, state, lane, id)
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, $1::bytea, $2::text, $3::bigint, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.attempts
FROM postbox_messages m
WHERE m.spool = $4 AND m.state = $5 AND m.lane = $6 AND m.id = $7

-- RemoveMessage (spool, state, lane, id)
DELETE FROM postbox_messages WHERE spool = $1 AND state = $2 AND lane = $3 AND id = $4

-- MessageOfUniqueKey
SELECT id, created_at FROM postbox_unique_keys WHERE digest = $1

-- DeadLetter
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(octet_length(d.payload), 0) + octet_length(d.metadata) AS size, d.payload, d.metadata, COALESCE(d.source_topic, ''), COALESCE(d.carried_id, d.message_id)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id = $1

-- LetterBehind (later)
SELECT d.id FROM postbox_dead_letters d ORDER BY d.id DESC LIMIT 1 OFFSET (SELECT $1::bigint)

-- DeleteDeadLetter (id, resolved)
DELETE FROM postbox_dead_letters WHERE id = $1 AND (resolved_at IS NULL OR $2 = 1)

-- Resolve (reason, id)
UPDATE postbox_dead_letters SET resolved_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint, resolution = $1 WHERE id = $2 AND resolved_at IS NULL

-- Failures (subject, most)
SELECT attempt, failed_at, error, process
FROM (SELECT id, attempt, failed_at, error, process FROM postbox_failures WHERE subject = $1 ORDER BY id DESC LIMIT $2) f
ORDER BY id

-- AuditRows (before, least, from, until, actor, action, target, most)
SELECT id, acted_at, actor, action, target, subject, filter, affected, note
FROM postbox_audit
WHERE id < $1 AND id >= $2 AND acted_at + 0 >= $3 AND acted_at + 0 < $4
  AND ($5::text = '' OR actor = $5)
  AND ($6::text = '' OR action = $6)
  AND ($7::text = '' OR target = $7)
ORDER BY id DESC
LIMIT $8

-- AuditSearchEnd (before, among)
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT id FROM postbox_audit WHERE id < $1 ORDER BY id DESC LIMIT (SELECT $2::bigint)) p

-- InboxLetters
SELECT p.consumer, SUM(p.origin), SUM(CASE WHEN p.died_at > (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - 600000000 THEN p.origin ELSE 0 END)
FROM (SELECT d.consumer, CASE WHEN d.resolved_at IS NULL THEN d.origin ELSE 0 END AS origin, d.died_at FROM postbox_dead_letters d WHERE d.spool IS NULL ORDER BY d.spool DESC, d.died_at DESC LIMIT (SELECT $1::bigint)) p
GROUP BY p.consumer
