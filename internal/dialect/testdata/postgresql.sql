-- Lock (states, lanes, tokens, ids, times, spool)
SELECT m.id
FROM unnest((SELECT $1::smallint[]), (SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]))
	AS s(state, lane, token, id, created_at)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT $6::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1
	FOR UPDATE SKIP LOCKED) AS m

-- Find (states, lanes, tokens, ids, times, spool)
SELECT m.id
FROM unnest((SELECT $1::smallint[]), (SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]))
	AS s(state, lane, token, id, created_at)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT $6::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1) AS m

-- LockAsRead (states, lanes, tokens, ids, times, attempts, least, most, spool)
SELECT m.id
FROM unnest((SELECT $1::smallint[]), (SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]),
	(SELECT $6::integer[]), (SELECT $7::smallint[]), (SELECT $8::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT $9::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1
	FOR UPDATE SKIP LOCKED) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = $9)) IS TRUE

-- StandingAsRead (states, lanes, tokens, ids, times, attempts, least, most, spool)
SELECT m.id
FROM unnest((SELECT $1::smallint[]), (SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]),
	(SELECT $6::integer[]), (SELECT $7::smallint[]), (SELECT $8::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT $9::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = $9)) IS TRUE

-- CountStarts (states, lanes, tokens, ids, times, attempts, least, most, spool)
WITH r AS MATERIALIZED (SELECT m.*
FROM unnest((SELECT $1::smallint[]), (SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]),
	(SELECT $6::integer[]), (SELECT $7::smallint[]), (SELECT $8::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT $9::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = $9)) IS TRUE)
UPDATE postbox_messages m SET starts = m.starts + 1
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.starts) IN (SELECT part, id, starts FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END

-- TakeBackStarts (lanes, ids, times, spool)
WITH r AS MATERIALIZED (SELECT m.*
FROM (SELECT state, lane, id, created_at
	FROM unnest((SELECT $1::smallint[]), (SELECT $2::bigint[]), (SELECT $3::bigint[])) AS r(lane, id, created_at),
	     (VALUES (0::smallint), (1::smallint), (2::smallint)) AS t(state)) AS s
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT $4::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1) AS m)
UPDATE postbox_messages m SET starts = m.starts - 1
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.starts) IN (SELECT part, id, starts FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END
  AND m.starts > 0

-- Release (spool, holder, lanes)
UPDATE postbox_lanes SET holder = NULL WHERE spool = $1 AND holder = $2 AND lane = ANY($3::smallint[])

-- Limits (holder, spool)
SELECT name, slot, token, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, CASE WHEN holder = $1 THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = $2) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = $2 ORDER BY name, slot

-- AddSlots (spool, name, slots)
INSERT INTO postbox_limits (spool, name, slot, token)
SELECT $1, $2, f.n, (date_part('epoch', clock_timestamp()) * 1000000)::bigint FROM (SELECT unnest($3::bigint[]) AS n) f ON CONFLICT DO NOTHING

-- ChangeSlots (holder, token, spool, name, slots, tokens)
UPDATE postbox_limits SET holder = $1, token = $2
WHERE spool = $3 AND name = $4 AND slot IN (SELECT unnest($5::bigint[]) AS n) AND token IN (SELECT unnest($6::bigint[]) AS n)

-- UnfitTables
SELECT COALESCE((SELECT CASE WHEN seqcache > 1 THEN 'sequence cache' END FROM pg_sequence WHERE seqrelid = to_regclass('postbox_messages_id_seq')),
       (SELECT 'earlier' FROM pg_attribute WHERE attrelid = to_regclass('postbox_lanes') AND attname = 'expires_at' AND NOT attisdropped),
       (SELECT CASE
		WHEN to_regclass(substring(p.prosrc FROM 'FROM ([^ ]*waiting) ')) IS DISTINCT FROM to_regclass('postbox_waiting') THEN 'functions'
		WHEN NOT has_function_privilege(p.oid, 'EXECUTE') THEN 'execute' END AS reason
	FROM (VALUES ('postbox_remove'), ('postbox_due'), ('postbox_stuck')) AS f(name) LEFT JOIN pg_proc p ON p.oid = to_regproc(f.name)
	WHERE to_regclass('postbox_waiting') IS NOT NULL ORDER BY reason DESC NULLS LAST LIMIT 1), '')

-- Behind
SELECT COALESCE(string_agg('SELECT setval(' || quote_literal(q.sequence) || ', ' || q.highest || ')', ' and '), '') FROM (
	SELECT 'postbox_messages_id_seq' AS sequence, (SELECT max(l.id) FROM postbox_spools s CROSS JOIN generate_series(0, 31) n(lane) CROSS JOIN LATERAL ((SELECT m.id FROM ONLY postbox_messages m WHERE m.spool = s.id AND m.state = 0 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1)
		UNION ALL (SELECT m.id FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 1 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1) UNION ALL (SELECT m.id FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1)) l) AS highest
	UNION ALL SELECT 'postbox_dead_letters_id_seq', (SELECT max(id) FROM postbox_dead_letters) UNION ALL SELECT 'postbox_failures_id_seq', (SELECT max(id) FROM postbox_failures)
	UNION ALL SELECT 'postbox_audit_id_seq', (SELECT max(id) FROM postbox_audit)
	UNION ALL SELECT 'postbox_spools_id_seq', (SELECT max(id) FROM postbox_spools)) q
WHERE CASE WHEN has_sequence_privilege(q.sequence, 'USAGE, SELECT') THEN q.highest > COALESCE(pg_sequence_last_value(q.sequence::regclass), 0) END

-- Deployment
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- NameDeployment
INSERT INTO postbox_deployment (id, name) VALUES (1, $1) ON CONFLICT DO NOTHING

-- Identity
SELECT identity FROM postbox_identity WHERE id = 1

-- RegisterSpool
INSERT INTO postbox_spools (name) VALUES ($1) ON CONFLICT DO NOTHING

-- FindSpool
SELECT id FROM postbox_spools WHERE name = $1

-- FillLanes
INSERT INTO postbox_lanes (spool, lane)
SELECT $1, lane FROM generate_series(0, 31) AS lane
ON CONFLICT DO NOTHING

-- Join
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES ($1, $2, $3, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $4, $5)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = EXCLUDED.in_flight, expires_at = EXCLUDED.expires_at, sharing = EXCLUDED.sharing

-- Leave
DELETE FROM postbox_members WHERE spool = $1 AND holder = $2

-- ExpireMembers
DELETE FROM postbox_members WHERE spool = $1 AND expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- Renew
UPDATE postbox_members SET in_flight = $1, expires_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $2, sharing = $3 WHERE spool = $4 AND holder = $5

-- ReleaseAll (spool, holder)
UPDATE postbox_lanes SET holder = NULL, suspect = 1 WHERE spool = $1 AND holder = $2

-- Acquire (later, holder, spool, most)
UPDATE postbox_lanes SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = GREATEST(token, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + $1::bigint, holder = $2
WHERE spool = $3 AND lane IN (
	WITH free AS MATERIALIZED (
		SELECT lane, token FROM postbox_lanes WHERE spool = $3 AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = $3))),
	mine AS MATERIALIZED (
		SELECT l.lane FROM free f JOIN postbox_lanes l ON l.lane = f.lane AND l.token = f.token
		WHERE l.spool = $3 ORDER BY l.lane LIMIT $4 FOR UPDATE OF l SKIP LOCKED)
	SELECT lane FROM mine)

-- Held
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = $1 AND holder = $2 ORDER BY lane

-- HoldLane
SELECT 1 FROM postbox_lanes WHERE spool = $1 AND lane = $2 AND token = $3 FOR KEY SHARE

-- ClearSuspect
UPDATE postbox_lanes SET suspect = 0 WHERE spool = $1 AND lane = $2 AND token = $3

-- BlockedLanes (spool, holder)
SELECT l.lane FROM postbox_lanes l
WHERE l.spool = $1 AND l.holder = $2 AND l.suspect = 1 AND EXISTS (
	SELECT 1 FROM postbox_messages r WHERE r.spool = l.spool AND r.state = 2 AND r.lane = l.lane AND r.key_hash IS NOT NULL AND EXISTS (
		SELECT 1 FROM postbox_messages m WHERE m.spool = l.spool AND m.state IN (0, 1, 2) AND m.lane = l.lane AND m.id > r.id))

-- LoadPayload
SELECT payload, metadata FROM postbox_messages WHERE spool = $1 AND state = (SELECT $2::smallint) AND lane = $3 AND id = $4 AND created_at = $5

-- SettleFailed (failed, spool, process)
WITH s AS MATERIALIZED (
	SELECT * FROM json_to_recordset($1::json) AS s(state smallint, lane smallint, token bigint, id bigint, created_at bigint,
		attempts integer, least smallint, most smallint, delay bigint, added integer, back smallint, cause smallint, attempt integer, error text)),
r AS MATERIALIZED (
	SELECT m.*, s.cause IS NOT NULL OR s.state = 0 AS moves
FROM s
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT $2::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = $2)) IS TRUE),
d AS (
	DELETE FROM postbox_messages m
	WHERE m.ctid = ANY(ARRAY(SELECT place FROM r WHERE moves))
	  AND ((m.tableoid, m.id, m.state, m.starts) IN (SELECT part, id, state, starts FROM r WHERE moves)) IS TRUE
	  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END
	RETURNING m.*),
u AS (
	UPDATE postbox_messages m
	SET state = 2, available_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + s.delay, attempts = m.attempts + s.added, starts = m.starts - s.back
	FROM s
	WHERE s.id = m.id AND m.ctid = ANY(ARRAY(SELECT place FROM r WHERE NOT moves))
	  AND ((m.tableoid, m.id, m.state, m.starts) IN (SELECT part, id, state, starts FROM r WHERE NOT moves)) IS TRUE
	  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END
	RETURNING m.id),
w AS (
	INSERT INTO postbox_waiting (state, available_at, attempts, starts,
	                       id, spool, lane, key_hash, created_at, topic, message_id, ordering_key, payload, metadata)
	SELECT 2, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + s.delay, m.attempts + s.added, m.starts - s.back,
	       m.id, m.spool, m.lane, m.key_hash, m.created_at, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata
	FROM d m JOIN s ON s.id = m.id
	WHERE s.cause IS NULL
	RETURNING 1),
x AS (
	INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
	                            payload, metadata, created_at, died_at, attempts)
	SELECT 0, 'm'::bytea || int8send(m.id) || int8send(m.created_at), s.error, s.cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
	       m.payload, m.metadata, m.created_at, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.attempts + 1
	FROM d m JOIN s ON s.id = m.id
	WHERE s.cause IS NOT NULL
	ORDER BY m.id
	RETURNING 1),
f AS (
	INSERT INTO postbox_failures (subject, attempt, failed_at, error, process)
	SELECT 'm'::bytea || int8send(m.id) || int8send(m.created_at), m.attempt, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.error, $3::text
	FROM s m WHERE m.attempt IS NOT NULL
	ORDER BY m.id)
SELECT (SELECT COUNT(*) FROM w) + (SELECT COUNT(*) FROM x) + (SELECT COUNT(*) FROM u)

-- Writers
WITH l AS MATERIALIZED (SELECT locktype, relation, database, mode, transactionid, virtualtransaction FROM pg_locks),
w AS MATERIALIZED (
	SELECT virtualtransaction FROM l
	WHERE locktype = 'relation' AND relation = 'postbox_messages'::regclass AND mode = 'RowExclusiveLock'
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT transactionid::text::bigint FROM l
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND virtualtransaction IN (SELECT virtualtransaction FROM w)
UNION
SELECT split_part(virtualtransaction, '/', 2)::bigint FROM w WHERE virtualtransaction LIKE '-1/%'

-- InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES ($1, $2, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $3, $4)

-- LastAttempt
SELECT attempt FROM postbox_failures WHERE subject = $1 ORDER BY id DESC LIMIT 1

-- InsertDeadLetter (subject, spool, consumer, topic, message_id, source, carried_id, key, key_hash, payload, metadata, attempts, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8, $9,
        $10, $11, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $12, $13, $14)

-- BuryRow (subject, spool, topic, message_id, payload, metadata, error, cause)
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (0, $1, $2, '', $3, $4, $5, $6, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, 0, $7, $8)

-- Claim
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES ($1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) ON CONFLICT DO NOTHING

-- FindClaim
SELECT 1 FROM postbox_claims WHERE claim_key = $1

-- LockClaim
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES ($1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (claim_key) DO UPDATE SET claimed_at = 0

-- RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = $1

-- ClaimsPage
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > $1 ORDER BY claim_key LIMIT $2)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $3 THEN 1 ELSE 0 END), 0)
FROM p

-- PurgeClaims
DELETE FROM postbox_claims WHERE claim_key > $1 AND claim_key <= $2 AND claimed_at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $3

-- AddChore
INSERT INTO postbox_chores (name) VALUES ($1) ON CONFLICT DO NOTHING

-- TakeChore (holder, ttl, name)
UPDATE postbox_chores SET holder = $1, expires_at = CASE WHEN $2::bigint > 0 THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $2 ELSE 0 END
WHERE name = $3 AND (holder = $1 OR expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)

-- ChoreCursor
SELECT progress FROM postbox_chores WHERE name = $1

-- SaveChore
UPDATE postbox_chores SET progress = $1 WHERE name = $2 AND holder = $3

-- PurgeDeadLetters
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool = $1 AND died_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $2::bigint ORDER BY died_at LIMIT $3)

-- PurgeOthers
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool IS NULL AND died_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $1::bigint ORDER BY died_at LIMIT $2)

-- PurgeFailures
DELETE FROM postbox_failures WHERE id IN (
	SELECT id FROM postbox_failures WHERE failed_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $1::bigint ORDER BY failed_at LIMIT $2)

-- PurgeHistory
DELETE FROM postbox_history WHERE (id, done_at) IN (
	SELECT id, done_at FROM postbox_history WHERE spool = $1 AND done_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $2::bigint ORDER BY done_at LIMIT $3)

-- PurgeAudit
DELETE FROM postbox_audit WHERE id IN (
	SELECT id FROM postbox_audit WHERE acted_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $1::bigint ORDER BY acted_at LIMIT $2)

-- PurgeReceipts
DELETE FROM postbox_receipts WHERE receipt_key IN (
	SELECT receipt_key FROM postbox_receipts WHERE state = $1 AND due_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $2::bigint ORDER BY state, due_at, receipt_key LIMIT $3)

-- NextOfLetters
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_dead_letters WHERE spool > $1) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- NextOfHistory
SELECT g.spool, COALESCE(s.settings, ''), COALESCE(s.history, 0)
FROM (SELECT MIN(spool) AS spool FROM postbox_history WHERE spool > $1) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- NextWaiting (age, after)
SELECT g.spool, s.name,
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $1::bigint THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - $1::bigint) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > $2) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- Spools (spool)
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
FROM postbox_spools s
WHERE $1::bigint = 0 OR s.id = $1

-- Members
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE $1 IN (0, spool) AND expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND sharing = 1
ORDER BY spool, holder

-- Clock
SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint

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
SELECT settings FROM postbox_spools WHERE id = $1

-- PausedKeys
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = $1 ORDER BY paused_at, id

-- PausedTopics
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = $1 AND ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint ORDER BY paused_at, topic

-- KeepHistory (history, spool)
UPDATE postbox_spools SET history = $1 WHERE id = $2 AND history <> $1

-- KeepBatches (rule, spool)
UPDATE postbox_spools SET batches = $1 WHERE id = $2 AND batches <> $1

-- KeepReceived (since, spool, topic, message_id, source, carried_id, key, payload, metadata, omitted, process, clock, claim)
INSERT INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, process)
SELECT n.clock - $1::bigint, $2::bigint, $3::text, $4::bytea, $5::text, $6::bytea, $7::bytea, $8::bytea, $9::bytea, n.clock - $1::bigint, n.clock, 0, $10::bigint, $11::text
FROM (SELECT CASE WHEN $12::bigint > 0 THEN $12::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint END AS clock FROM postbox_claims WHERE claim_key = $13 ORDER BY claim_key LIMIT 1) n
ON CONFLICT DO NOTHING

-- ChangeReceipt (state, handled_at, key, was)
UPDATE postbox_receipts SET state = $1, handled_at = $2, received_at = CASE WHEN $2::bigint IS NOT NULL THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint END
WHERE receipt_key = $3 AND state = $4

-- AddReceipt
INSERT INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES ($1, 2, $2, $3, $4, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $5, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) ON CONFLICT DO NOTHING

-- ReceiptPage
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = $1 AND due_at >= $2 AND due_at <= (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + $3::bigint AND (due_at > $4 OR receipt_key > $5)
ORDER BY state, due_at, receipt_key
LIMIT $6

-- ReceiptsOf
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE receipt_key >= $1 AND receipt_key <= $2 AND message_id = $3
ORDER BY receipt_key
LIMIT $4

-- AddToAct
UPDATE postbox_audit SET affected = affected + $1, note = $2 WHERE operation = $3

-- RecordAct
INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES ($1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING

-- LockAct
UPDATE postbox_audit SET affected = affected WHERE operation = $1

-- NoteOfAct
SELECT note FROM postbox_audit WHERE operation = $1

-- Ages
WITH RECURSIVE n (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM n WHERE lane < 31)
SELECT s.id, s.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
       CASE WHEN (SELECT 1 FROM ONLY postbox_messages m WHERE m.spool = s.id AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM ONLY postbox_messages m WHERE m.spool = s.id AND m.state = 0 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 1 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 1 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       CASE WHEN (SELECT 1 FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1) = 1 THEN COALESCE((SELECT MIN((
	SELECT m.created_at FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 AND m.lane = n.lane
	ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)) FROM n), 9223372036854775807) ELSE 9223372036854775807 END,
       COALESCE((SELECT m.available_at FROM postbox_waiting m WHERE m.spool = s.id ORDER BY m.available_at LIMIT 1), 9223372036854775807),
       COALESCE(CASE WHEN s.pause_ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN s.paused_at END, 9223372036854775807), s.batches
FROM (SELECT id, name, paused_at, pause_ends_at, batches FROM postbox_spools UNION ALL SELECT o.stray, NULL, NULL, 0, '' FROM (
	SELECT (SELECT MIN(m.spool) FROM postbox_messages m
	        WHERE m.spool > g.id AND m.spool < COALESCE((SELECT MIN(n.id) FROM postbox_spools n WHERE n.id > g.id), 9223372036854775807)) AS stray
	FROM (SELECT id FROM postbox_spools UNION ALL SELECT 0) g) o WHERE o.stray IS NOT NULL) s
WHERE s.id BETWEEN 1 AND 2147483647

-- UniqueKeysPage
SELECT u.digest, u.id, u.created_at, CASE WHEN (SELECT 1 FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m LIMIT 1) IS NULL THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > $1::bytea ORDER BY u.digest LIMIT $2

-- RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = $1 AND id = $2 AND created_at = $3

-- CreateVersion
CREATE TABLE IF NOT EXISTS postbox_version (
	id         integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
	version_id bigint NOT NULL,
	is_applied boolean NOT NULL,
	tstamp     timestamp NOT NULL DEFAULT now()
)

-- Uptime
SELECT (date_part('epoch', clock_timestamp() - GREATEST(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000000)::bigint,
       (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text

-- TryWrite
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- Notify
SELECT pg_notify($1, $2)

-- IdleLook (in_flight, ttl, spool, holder, lanes, after, up_to)
WITH renewed AS (
	UPDATE postbox_members SET in_flight = $1, expires_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $2 WHERE spool = $3 AND holder = $4
	RETURNING 1)
SELECT (SELECT COUNT(*) FROM renewed), (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = $3 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = $3), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'),
       COALESCE((
	SELECT TRUE FROM unnest($5::smallint[], $6::bigint[], $7::bigint[]) AS c(lane, after, up_to)
	CROSS JOIN LATERAL (
		SELECT m.id FROM ONLY postbox_messages m
		WHERE m.spool = $3 AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
		ORDER BY m.id LIMIT 1) f
	LIMIT 1), FALSE),
       COALESCE((SELECT m.available_at FROM postbox_waiting m WHERE m.spool = $3 ORDER BY m.available_at LIMIT 1), 9223372036854775807) - (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- Append, one row
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $1::integer, $2::smallint, 0, $3::bigint, 0, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, $4::text, $5::bytea, $6::bytea, $7::bytea, $8::bytea
WHERE pg_current_xact_id() IS NOT NULL

-- Append, two rows (spool, bytes, begins, claim_sizes, id_sizes, key_sizes, metadata_sizes, payload_sizes, lanes, hashes, topics)
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $1::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM (
SELECT n, lane, key_hash, topic,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT $2::bytea AS bytes) AS b,
     unnest($3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
            $8::integer[], $9::smallint[], $10::bigint[], $11::text[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, n)) AS r
WHERE pg_current_xact_id() IS NOT NULL
ORDER BY r.n

-- Append, two rows of which one waits (bytes, begins, claim_sizes, id_sizes, key_sizes, metadata_sizes, payload_sizes, lanes, hashes, topics, states, dues, delays, spool)
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic, state, due, delay,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT $1::bytea AS bytes) AS b,
     unnest($2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
            $7::integer[], $8::smallint[], $9::bigint[], $10::text[], $11::smallint[], $12::bigint[], $13::bigint[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, state, due, delay, n)),
w AS (
INSERT INTO postbox_waiting (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $14::integer, r.lane, r.key_hash, r.state, CASE WHEN r.due > 0 THEN r.due ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + r.delay END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r
WHERE pg_current_xact_id() IS NOT NULL AND r.state > 0
ORDER BY r.n)
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $14::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r
WHERE pg_current_xact_id() IS NOT NULL AND r.state = 0
ORDER BY r.n

-- Ingest, two rows of which one waits, whole (bytes, begins, claim_sizes, id_sizes, key_sizes, metadata_sizes, payload_sizes, lanes, hashes, topics, states, dues, delays, spool)
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic, state, due, delay,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT $1::bytea AS bytes) AS b,
     unnest($2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
            $7::integer[], $8::smallint[], $9::bigint[], $10::text[], $11::smallint[], $12::bigint[], $13::bigint[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, state, due, delay, n)),
c AS (
	INSERT INTO postbox_claims (claim_key, claimed_at)
	SELECT claim_key, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM r ORDER BY claim_key
	ON CONFLICT DO NOTHING
	RETURNING claim_key),
m AS (
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $14::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL AND r.state = 0
ORDER BY r.n),
w AS (
INSERT INTO postbox_waiting (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $14::integer, r.lane, r.key_hash, r.state, CASE WHEN r.due > 0 THEN r.due ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + r.delay END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL AND r.state > 0
ORDER BY r.n)
SELECT n FROM r WHERE claim_key NOT IN (SELECT claim_key FROM c)

-- Ingest, two rows, whole (bytes, begins, claim_sizes, id_sizes, key_sizes, metadata_sizes, payload_sizes, lanes, hashes, topics, spool)
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT $1::bytea AS bytes) AS b,
     unnest($2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[],
            $7::integer[], $8::smallint[], $9::bigint[], $10::text[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, n)),
c AS (
	INSERT INTO postbox_claims (claim_key, claimed_at)
	SELECT claim_key, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM r ORDER BY claim_key
	ON CONFLICT DO NOTHING
	RETURNING claim_key),
m AS (
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT $11::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL
ORDER BY r.n)
SELECT n FROM r WHERE claim_key NOT IN (SELECT claim_key FROM c)

-- AppendUnique, replace false, state 0, statement 1
INSERT INTO postbox_unique_keys AS u (digest, spool, lane, id, created_at) VALUES ($1, $2, 0, 0, 0)
ON CONFLICT (digest) DO UPDATE SET id = u.id WHERE FALSE

-- AppendUnique, replace false, state 0, statement 2
WITH k AS (
	UPDATE postbox_unique_keys u SET lane = $1::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = $2
	  AND (SELECT 1 FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.xmax AS touched
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
	WHERE m.touched = 0 OR current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') LIMIT 1) IS NULL
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO postbox_messages (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, $3::smallint, $4::bigint, CASE WHEN $5::bigint > 0 THEN $6::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $7::bigint END, k.created_at,
       $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bytea
FROM k

-- AppendUnique, state 0, of a free key
WITH k AS (
	UPDATE postbox_unique_keys u SET lane = $1::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = $2
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO postbox_messages (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, $3::smallint, $4::bigint, CASE WHEN $5::bigint > 0 THEN $6::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $7::bigint END, k.created_at,
       $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bytea
FROM k

-- AppendUnique, replace true, state 0, statement 2
WITH r AS MATERIALIZED (SELECT m.*
FROM postbox_unique_keys u
CROSS JOIN LATERAL (VALUES (0::smallint), (1::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE u.digest = $1)
DELETE FROM postbox_messages m
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.state) IN (SELECT part, id, state FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END

-- AppendUnique, replace true, state 0, statement 3
WITH d AS (
WITH r AS MATERIALIZED (SELECT m.*
FROM postbox_unique_keys u
CROSS JOIN LATERAL (VALUES (0::smallint), (1::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE u.digest = $1)
DELETE FROM postbox_messages m
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.state) IN (SELECT part, id, state FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END),
k AS (
	UPDATE postbox_unique_keys u SET lane = $2::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = $3
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO postbox_messages (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, $4::smallint, $5::bigint, CASE WHEN $6::bigint > 0 THEN $7::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $8::bigint END, k.created_at,
       $9::text, $10::bytea, $11::bytea, $12::bytea, $13::bytea
FROM k

-- AppendUnique, replace false, state 1, statement 2
WITH k AS (
	UPDATE postbox_unique_keys u SET lane = $1::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = $2
	  AND (SELECT 1 FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.xmax AS touched
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
	WHERE m.touched = 0 OR current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') LIMIT 1) IS NULL
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO postbox_waiting (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, $3::smallint, $4::bigint, CASE WHEN $5::bigint > 0 THEN $6::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $7::bigint END, k.created_at,
       $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bytea
FROM k

-- AppendUnique, state 1, of a free key
WITH k AS (
	UPDATE postbox_unique_keys u SET lane = $1::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = $2
	RETURNING u.id, u.spool, u.lane, u.created_at)
INSERT INTO postbox_waiting (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT k.id, k.spool, k.lane, $3::smallint, $4::bigint, CASE WHEN $5::bigint > 0 THEN $6::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $7::bigint END, k.created_at,
       $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bytea
FROM k

-- AwaitReceipts, one
INSERT INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES ($1, 0, $2, $3, $4, COALESCE($5::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $6), COALESCE($7::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $8)) ON CONFLICT DO NOTHING

-- Fetch, two lanes (spool, lanes, after, up_to, inline, known, page, excluded, held, unordered, paused, due, mark)
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck($1, 16))
SELECT f.* FROM unnest((SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS c(lane, after, up_to)
CROSS JOIN LATERAL (
	SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT $1::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT unnest($6::bigint[]))
	  AND CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END
	ORDER BY m.id LIMIT (SELECT $7::bigint)) f
UNION ALL
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
FROM postbox_due((SELECT $1::integer), $2::smallint[], $6::bigint[], $8::text[], $9::bigint[], $10, $11, $12) m
UNION ALL
SELECT -1::smallint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = $1 AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)))::smallint,
       CASE WHEN a.given >= 0 AND $13::boolean THEN pg_current_xact_id()::text::bigint END, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1)::integer,
       COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = $1), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'), pg_current_snapshot()::text::bytea, NULL, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, a.given, NULL, NULL
FROM (SELECT COALESCE(pg_sequence_last_value('postbox_messages_id_seq'::regclass), (SELECT 0 * s.last_value FROM postbox_messages_id_seq s)) AS given OFFSET 0) a

-- Fetch, one lane, unordered (spool, lanes, after, up_to, inline, known, page, excluded, held, unordered, paused, due, mark)
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck($1, 16))
SELECT f.* FROM unnest((SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS c(lane, after, up_to)
CROSS JOIN LATERAL (
	SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT $1::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT unnest($6::bigint[]))
	  AND TRUE
	ORDER BY m.id LIMIT (SELECT $7::bigint)) f
UNION ALL
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
FROM postbox_due((SELECT $1::integer), $2::smallint[], $6::bigint[], $8::text[], $9::bigint[], $10, $11, $12) m
UNION ALL
SELECT -1::smallint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = $1 AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)))::smallint,
       CASE WHEN a.given >= 0 AND $13::boolean THEN pg_current_xact_id()::text::bigint END, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1)::integer,
       COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = $1), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'), pg_current_snapshot()::text::bytea, NULL, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, a.given, NULL, NULL
FROM (SELECT COALESCE(pg_sequence_last_value('postbox_messages_id_seq'::regclass), (SELECT 0 * s.last_value FROM postbox_messages_id_seq s)) AS given OFFSET 0) a

-- Fetch, one lane, excluded topics, paused and held keys (spool, lanes, after, up_to, inline, known, excluded, unordered, paused, held, page, due, mark)
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck($1, 16))
SELECT f.* FROM unnest((SELECT $2::smallint[]), (SELECT $3::bigint[]), (SELECT $4::bigint[])) AS c(lane, after, up_to)
CROSS JOIN LATERAL (
	SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT $1::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT unnest($6::bigint[]))
	  AND m.topic NOT IN (SELECT unnest($7::text[]))
	  AND ((SELECT $8::boolean) OR CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END)
	  AND (NOT (SELECT $9::boolean) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT unnest($10::bigint[]) AS n))
	ORDER BY m.id LIMIT (SELECT $11::bigint)) f
UNION ALL
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= $5::bigint THEN m.payload END AS payload
FROM postbox_due((SELECT $1::integer), $2::smallint[], $6::bigint[], $7::text[], $10::bigint[], $8, $9, $12) m
UNION ALL
SELECT -1::smallint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = $1 AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)))::smallint,
       CASE WHEN a.given >= 0 AND $13::boolean THEN pg_current_xact_id()::text::bigint END, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = $1 AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1)::integer,
       COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = $1), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'), pg_current_snapshot()::text::bytea, NULL, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, a.given, NULL, NULL
FROM (SELECT COALESCE(pg_sequence_last_value('postbox_messages_id_seq'::regclass), (SELECT 0 * s.last_value FROM postbox_messages_id_seq s)) AS given OFFSET 0) a

-- Sweep (spool, known, excluded, unordered, paused, held, lanes, after, up_to)
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck($1, 16))
SELECT c.lane, (
	SELECT m.id
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT $1::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND m.id NOT IN (SELECT unnest($2::bigint[])) AND m.topic NOT IN (SELECT unnest($3::text[]))
	  AND ((SELECT $4::boolean) OR CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END)
	  AND (NOT (SELECT $5::boolean) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT unnest($6::bigint[]) AS n))
	ORDER BY m.id LIMIT 1) AS id
FROM unnest((SELECT $7::smallint[]), (SELECT $8::bigint[]), (SELECT $9::bigint[])) AS c(lane, after, up_to)

-- Remove, one message (spool, lane, id, created_at, token, servers)
DELETE FROM ONLY postbox_messages m
USING postbox_lanes l
WHERE m.spool = $1 AND m.state = 0 AND m.lane = $2 AND m.id = $3 AND m.created_at = $4
  AND l.spool = m.spool AND l.lane = m.lane AND l.token = $5
  AND (SELECT $6::text IS NULL OR strpos($6::text, '|' || COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages') || '|') > 0)

-- Remove, two messages, on a server that was seen (servers, spool, states, lanes, tokens, ids, times)
SELECT FROM (SELECT generate_series(1, CASE WHEN (SELECT $1::text IS NULL OR strpos($1::text, '|' || COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages') || '|') > 0)
	THEN postbox_remove($2, $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[]) ELSE 0 END)) AS removed

-- Keep (spool, states, lanes, tokens, ids, times)
INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.attempts + 1,
       (SELECT l.holder FROM postbox_lanes l WHERE l.spool = $1 AND l.lane = m.lane)
FROM unnest((SELECT $2::smallint[]), (SELECT $3::smallint[]), (SELECT $4::bigint[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]))
	AS s(state, lane, token, id, created_at)
CROSS JOIN LATERAL (
	SELECT m.*
	FROM postbox_messages m
	WHERE m.spool = (SELECT $1::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = $1)) IS TRUE
ON CONFLICT DO NOTHING
