-- Search (spool, state, lane, id, last_state, among, bounds, error, topic, key, message_id, most)
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM postbox_messages m
	WHERE m.spool = $1 AND (m.state, m.lane, m.id) > ($2, $3, $4) AND m.state <= $5
	ORDER BY m.state, m.lane, m.id
	LIMIT (SELECT $6::bigint))
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) FROM postbox_messages m WHERE m.spool = $1 AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted
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
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l

-- RetryingOfKey (spool, hash, state, lane, id, last_state, bounds, error, topic, key, message_id, most)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted
FROM (SELECT r.* FROM postbox_waiting r WHERE r.spool = $1 AND r.state = 2 AND r.key_hash = $2 ORDER BY r.id) m
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
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted
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
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted
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

-- LetterSearchEnd (after, among)
SELECT COUNT(*), COALESCE(MAX(p.id), 0) FROM (SELECT d.id FROM postbox_dead_letters d WHERE d.id > $1 ORDER BY d.id LIMIT (SELECT $2::bigint)) p

-- StuckHeads (after, spool, most)
SELECT m.*, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM (
	SELECT * FROM (
	SELECT r.* FROM unnest($1::bigint[]) WITH ORDINALITY AS c(after, n)
	CROSS JOIN LATERAL (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, m.key_hash
	FROM postbox_waiting m
	WHERE m.spool = $2 AND m.lane = (c.n - 1)::smallint AND m.id > c.after AND m.state = 2 AND m.key_hash IS NOT NULL AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
	ORDER BY m.id LIMIT $3::bigint) r) h
	ORDER BY id LIMIT $3) m
ORDER BY m.id

-- ReadyHeads (lanes, ids, spool)
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, m.key_hash, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = 'm'::bytea || int8send(m.id) || int8send(m.created_at) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
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

-- InboxLetters
SELECT p.consumer, SUM(p.origin), SUM(CASE WHEN p.died_at > (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - 600000000 THEN p.origin ELSE 0 END)
FROM (SELECT d.consumer, CASE WHEN d.resolved_at IS NULL THEN d.origin ELSE 0 END AS origin, d.died_at FROM postbox_dead_letters d WHERE d.spool IS NULL ORDER BY d.spool DESC, d.died_at DESC LIMIT (SELECT $1::bigint)) p
GROUP BY p.consumer
