-- Every statement of PostgreSQL as it runs, but for the names of tables that a user has changed and
-- :name for each argument. What stands between "-- if" and "-- end" is left out unless that is so.
-- Times are microseconds since 1970 in UTC. Each statement locks only the rows that it changes.
-- What operators alone execute is in admin/internal/operatorsql.
--
-- PostgreSQL plans a statement with statistics of its tables, and keeps the plan. A table of
-- messages fills and empties within moments, so its statistics are mostly wrong. How many pages it
-- has is always right, so the tables of messages keep a megabyte when they are empty: see the
-- migration. Then one row by an index costs less than the table in any plan. But TRUNCATE, VACUUM
-- FULL and a restored dump take the megabyte away. So rows are looked up one by one along an index,
-- CROSS JOIN LATERAL with a LIMIT, and a plan that reads the whole table does so once, and finds
-- each row in a hash.
--
-- Lists, lanes and limits are in subqueries, which hide their values from the planner. It plans a
-- prepared statement once for all values only if it expects no less of a plan for the given ones.
-- Otherwise it plans each poll of a few lanes anew, which takes longer than the poll. An id has two
-- bounds, since a search for one number has no order, and since for a number with one bound the
-- planner expects a third of all messages, which is enough to compile the statement.
--
-- m.starts >= -32768 is true for each message, but with the CASE around it the planner expects its
-- evaluation to cost as much as reading ten pages. Otherwise, with few messages in the table, it
-- would consider reading the whole table cheaper than one lookup, and would keep that plan while
-- the table grows.
--
-- Waiting messages are in postbox_waiting, which inherits from postbox_messages: see the migration.
-- The state of a message decides in which of the two it is, so most statements name
-- postbox_messages and mean both. Statements through which many messages go at the first attempt
-- name one table: ONLY postbox_messages contains the ready ones.

-- What must be so before anything starts ----------------------------------------------------------

-- name: UnfitTables
-- Why the tables cannot be used, or an empty text: ids are given to sessions in portions, the
-- tables are those of a version before, or the functions belong to other tables or may not be
-- executed.
SELECT COALESCE((SELECT CASE WHEN seqcache > 1 THEN 'sequence cache' END FROM pg_sequence WHERE seqrelid = to_regclass('postbox_messages_id_seq')),
       (SELECT 'earlier' FROM pg_attribute WHERE attrelid = to_regclass('postbox_lanes') AND attname = 'expires_at' AND NOT attisdropped),
       (SELECT CASE
		WHEN to_regclass(substring(p.prosrc FROM 'FROM ([^ ]*waiting) ')) IS DISTINCT FROM to_regclass('postbox_waiting') THEN 'functions'
		WHEN NOT has_function_privilege(p.oid, 'EXECUTE') THEN 'execute' END AS reason
	FROM (VALUES ('postbox_remove'), ('postbox_due'), ('postbox_stuck')) AS f(name) LEFT JOIN pg_proc p ON p.oid = to_regproc(f.name)
	WHERE to_regclass('postbox_waiting') IS NOT NULL ORDER BY reason DESC NULLS LAST LIMIT 1), '')

-- name: Behind
-- The sequences that are behind the ids that the tables have, as statements that set them. An id of
-- a table that the snapshot shows was given before, so a sequence can only be behind if it was
-- copied without its value, or not at all. Of messages the primary key has the last one of each
-- lane.
SELECT COALESCE(string_agg('SELECT setval(' || quote_literal(q.sequence) || ', ' || q.highest || ')', ' and '), '') FROM (
	SELECT 'postbox_messages_id_seq' AS sequence, (SELECT max(l.id) FROM postbox_spools s CROSS JOIN generate_series(0, 31) n(lane) CROSS JOIN LATERAL ((SELECT m.id FROM ONLY postbox_messages m WHERE m.spool = s.id AND m.state = 0 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1)
		UNION ALL (SELECT m.id FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 1 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1) UNION ALL (SELECT m.id FROM postbox_waiting m WHERE m.spool = s.id AND m.state = 2 AND m.lane = n.lane::smallint ORDER BY m.id DESC LIMIT 1)) l) AS highest
	UNION ALL SELECT 'postbox_dead_letters_id_seq', (SELECT max(id) FROM postbox_dead_letters) UNION ALL SELECT 'postbox_failures_id_seq', (SELECT max(id) FROM postbox_failures)
	UNION ALL SELECT 'postbox_audit_id_seq', (SELECT max(id) FROM postbox_audit)
	UNION ALL SELECT 'postbox_spools_id_seq', (SELECT max(id) FROM postbox_spools)) q
WHERE CASE WHEN has_sequence_privilege(q.sequence, 'USAGE, SELECT') THEN q.highest > COALESCE(pg_sequence_last_value(q.sequence::regclass), 0) END

-- name: Deployment
-- The name that is stored, empty where there is none.
SELECT COALESCE((SELECT name FROM postbox_deployment WHERE id = 1), '')

-- name: NameDeployment
-- Stores it, unless there is one.
INSERT INTO postbox_deployment (id, name) VALUES (1, :name) ON CONFLICT DO NOTHING

-- name: Identity
-- That of these tables.
SELECT identity FROM postbox_identity WHERE id = 1

-- name: TryWrite
-- Changes nothing, and fails if the server is read-only.
UPDATE postbox_spools SET version = version WHERE 1 = 0

-- name: Uptime
-- For how long the server has been up, and which server it is. A server that recovers from the
-- crash of one of its processes keeps its start time, but has lost its statistics.
SELECT (date_part('epoch', clock_timestamp() - GREATEST(pg_postmaster_start_time(), (SELECT stats_reset FROM pg_stat_bgwriter))) * 1000000)::bigint,
       (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text

-- name: ServerIn
-- An expression: the text by which the server that answers is found in a list of servers. It is the
-- same as in the last part of a Fetch. It identifies a server among all that have or had these
-- tables, and a table among those that replaced it: a standby has another start time than its
-- primary, and a restore creates or fills another file. No session outlives a server, so each
-- session keeps what it found.
'|' || COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages') || '|'

-- name: CreateVersion
-- The table of the versions of the schema, as goose has it.
CREATE TABLE IF NOT EXISTS postbox_version (
	id         integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
	version_id bigint NOT NULL,
	is_applied boolean NOT NULL,
	tstamp     timestamp NOT NULL DEFAULT now()
)

-- Spools, their members and lanes -----------------------------------------------------------------

-- name: RegisterSpool
INSERT INTO postbox_spools (name) VALUES (:name) ON CONFLICT DO NOTHING

-- name: FindSpool
-- Its id.
SELECT id FROM postbox_spools WHERE name = :name

-- name: FillLanes
INSERT INTO postbox_lanes (spool, lane)
SELECT :spool, lane FROM generate_series(0, 31) AS lane
ON CONFLICT DO NOTHING

-- name: Join
-- Inserts or renews the member.
INSERT INTO postbox_members (spool, holder, in_flight, expires_at, sharing) VALUES (:spool, :holder, :in_flight, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :ttl, :sharing)
ON CONFLICT (spool, holder) DO UPDATE SET in_flight = EXCLUDED.in_flight, expires_at = EXCLUDED.expires_at, sharing = EXCLUDED.sharing

-- name: Renew
-- Also renews a lease that is over, as long as no other process has deleted the row.
UPDATE postbox_members SET in_flight = :in_flight, expires_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :ttl, sharing = :sharing WHERE spool = :spool AND holder = :holder

-- name: Leave
DELETE FROM postbox_members WHERE spool = :spool AND holder = :holder

-- name: ExpireMembers
DELETE FROM postbox_members WHERE spool = :spool AND expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- name: ReleaseAll
-- The lanes of a member whose lease is lost. Its process may still handle a message of one, and
-- crash.
UPDATE postbox_lanes SET holder = NULL, suspect = 1 WHERE spool = :spool AND holder = :holder

-- name: Acquire
-- SKIP LOCKED: a process that is about to take a lane gets it, and other processes look for another
-- lane. The members are those of the snapshot. So a lane counts only if no process has taken it
-- since: such a process may have joined since, too. Then it has another token.
UPDATE postbox_lanes SET suspect = CASE WHEN holder IS NULL THEN suspect ELSE 1 END,
                   token = GREATEST(token, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + :later::bigint, holder = :holder
WHERE spool = :spool AND lane IN (
	WITH free AS MATERIALIZED (
		SELECT lane, token FROM postbox_lanes WHERE spool = :spool AND (holder IS NULL OR holder NOT IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool))),
	mine AS MATERIALIZED (
		SELECT l.lane FROM free f JOIN postbox_lanes l ON l.lane = f.lane AND l.token = f.token
		WHERE l.spool = :spool ORDER BY l.lane LIMIT :most FOR UPDATE OF l SKIP LOCKED)
	SELECT lane FROM mine)

-- name: Release
UPDATE postbox_lanes SET holder = NULL WHERE spool = :spool AND holder = :holder AND lane = ANY(:lanes::smallint[])

-- name: Held
-- Lane, token and suspect of each.
SELECT lane, token, suspect FROM postbox_lanes WHERE spool = :spool AND holder = :holder ORDER BY lane

-- name: HoldLane
-- This lock excludes Acquire, but not Release.
SELECT 1 FROM postbox_lanes WHERE spool = :spool AND lane = :lane AND token = :token FOR KEY SHARE

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
SELECT name, slot, token, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, CASE WHEN holder = :holder THEN 'mine'
       WHEN holder IN (SELECT w.holder FROM postbox_members w WHERE w.spool = :spool) THEN '' ELSE 'free' END
FROM postbox_limits WHERE spool = :spool ORDER BY name, slot

-- name: AddSlots
INSERT INTO postbox_limits (spool, name, slot, token)
SELECT :spool, :name, f.n, (date_part('epoch', clock_timestamp()) * 1000000)::bigint FROM (SELECT unnest(:slots::bigint[]) AS n) f ON CONFLICT DO NOTHING

-- name: ChangeSlots
UPDATE postbox_limits SET holder = :holder, token = :token
WHERE spool = :spool AND name = :name AND slot IN (SELECT unnest(:slots::bigint[]) AS n) AND token IN (SELECT unnest(:tokens::bigint[]) AS n)

-- name: Notify
-- Wakes all listeners of a channel.
SELECT pg_notify(:channel, :payload)

-- Messages are stored -----------------------------------------------------------------------------

-- name: AppendOne
-- One message that may be handled at once, which most of them are: by itself it is less work for
-- the server than packed. It has an id before it has a number, as in AppendReady.
--
-- Its time is that at which the statement arrived. Were it the clock, which may change while a
-- statement runs, the planner would keep the query apart from the insert, and that would cost an
-- eighth of the statement. From when it may be handled is not looked at while it is ready, and to
-- reckon with the clock once more would cost a thirtieth.
INSERT INTO postbox_messages (spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, :lane::smallint, 0, :key_hash::bigint, 0, (date_part('epoch', statement_timestamp()) * 1000000)::bigint, :topic::text, :message_id::bytea, :key::bytea, :payload::bytea, :metadata::bytea
WHERE pg_current_xact_id() IS NOT NULL

-- name: AppendReady
-- How many rows are taken: the bytes of all of them in one piece, and in arrays of numbers where
-- each row's begin and how long its parts are. The payload is last: its length is NULL where it is.
-- As an array of bytes each of them would be written and read in an array's text form, which took a
-- third of an insert's time.
--
-- PostgreSQL takes a number from a sequence before it gives the transaction an id. The condition on
-- the id is checked first, so a transaction that has a number has an id too: the watermark of a
-- drain depends on it. The subquery reads the time once for all rows.
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM (
SELECT n, lane, key_hash, topic,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT :bytes::bytea AS bytes) AS b,
     unnest(:begins::integer[], :claim_sizes::integer[], :id_sizes::integer[], :key_sizes::integer[], :metadata_sizes::integer[],
            :payload_sizes::integer[], :lanes::smallint[], :hashes::bigint[], :topics::text[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, n)) AS r
WHERE pg_current_xact_id() IS NOT NULL
ORDER BY r.n

-- name: AppendMixed
-- Rows of which some wait.
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic, state, due, delay,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT :bytes::bytea AS bytes) AS b,
     unnest(:begins::integer[], :claim_sizes::integer[], :id_sizes::integer[], :key_sizes::integer[], :metadata_sizes::integer[],
            :payload_sizes::integer[], :lanes::smallint[], :hashes::bigint[], :topics::text[], :states::smallint[], :dues::bigint[], :delays::bigint[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, state, due, delay, n)),
w AS (
INSERT INTO postbox_waiting (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, r.state, CASE WHEN r.due > 0 THEN r.due ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + r.delay END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r
WHERE pg_current_xact_id() IS NOT NULL AND r.state > 0
ORDER BY r.n)
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r
WHERE pg_current_xact_id() IS NOT NULL AND r.state = 0
ORDER BY r.n

-- name: IngestReady
-- Claims keys, and appends the row of each key that was not claimed before. It claims in the order
-- of the keys: if two transactions claim the same keys, one then waits for the other, and there is
-- no deadlock. It locks the claims that it makes, and waits for those of open transactions. It
-- returns the positions, from 1, of the other keys.
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT :bytes::bytea AS bytes) AS b,
     unnest(:begins::integer[], :claim_sizes::integer[], :id_sizes::integer[], :key_sizes::integer[], :metadata_sizes::integer[],
            :payload_sizes::integer[], :lanes::smallint[], :hashes::bigint[], :topics::text[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, n)),
c AS (
	INSERT INTO postbox_claims (claim_key, claimed_at)
	SELECT claim_key, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM r ORDER BY claim_key
	ON CONFLICT DO NOTHING
	RETURNING claim_key),
m AS (
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL
ORDER BY r.n)
SELECT n FROM r WHERE claim_key NOT IN (SELECT claim_key FROM c)

-- name: IngestMixed
WITH r AS MATERIALIZED (
SELECT n, lane, key_hash, topic, state, due, delay,
       substring(bytes, at, claim_size) AS claim_key,
       substring(bytes, at + claim_size, id_size) AS message_id,
       CASE WHEN key_hash IS NOT NULL THEN substring(bytes, at + claim_size + id_size, key_size) END AS ordering_key,
       substring(bytes, at + claim_size + id_size + key_size, metadata_size) AS metadata,
       substring(bytes, at + claim_size + id_size + key_size + metadata_size, payload_size) AS payload
FROM (SELECT :bytes::bytea AS bytes) AS b,
     unnest(:begins::integer[], :claim_sizes::integer[], :id_sizes::integer[], :key_sizes::integer[], :metadata_sizes::integer[],
            :payload_sizes::integer[], :lanes::smallint[], :hashes::bigint[], :topics::text[], :states::smallint[], :dues::bigint[], :delays::bigint[])
     WITH ORDINALITY AS p(at, claim_size, id_size, key_size, metadata_size, payload_size,
                          lane, key_hash, topic, state, due, delay, n)),
c AS (
	INSERT INTO postbox_claims (claim_key, claimed_at)
	SELECT claim_key, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint) FROM r ORDER BY claim_key
	ON CONFLICT DO NOTHING
	RETURNING claim_key),
m AS (
INSERT INTO postbox_messages (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, 0, 0, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL AND r.state = 0
ORDER BY r.n),
w AS (
INSERT INTO postbox_waiting (spool, lane, key_hash, state, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
SELECT :spool::integer, r.lane, r.key_hash, r.state, CASE WHEN r.due > 0 THEN r.due ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + r.delay END, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint),
       r.topic, r.message_id, r.ordering_key, r.payload, r.metadata
FROM r JOIN c ON c.claim_key = r.claim_key
WHERE pg_current_xact_id() IS NOT NULL AND r.state > 0
ORDER BY r.n)
SELECT n FROM r WHERE claim_key NOT IN (SELECT claim_key FROM c)

-- name: LockUniqueKey
-- A statement of its own, because a statement that waits for a lock may still see the messages as
-- they were before it waited. WHERE FALSE: the row is locked and not written.
INSERT INTO postbox_unique_keys AS u (digest, spool, lane, id, created_at) VALUES (:digest, :spool, 0, 0, 0)
ON CONFLICT (digest) DO UPDATE SET id = u.id WHERE FALSE

-- name: RemoveOfUniqueKey
-- Deletes the message that waits, unless it has failed: then others of its ordering key may wait
-- behind it, and drainers read those again when they settle the failed message.
WITH r AS MATERIALIZED (SELECT m.*
FROM postbox_unique_keys u
CROSS JOIN LATERAL (VALUES (0::smallint), (1::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE u.digest = :digest)
DELETE FROM postbox_messages m
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.state) IN (SELECT part, id, state FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END

-- name: StoreUnique
-- Gives the message its id before it is inserted, and notes it under the key in the same statement.
-- The lock has given the transaction an id, as in AppendReady.
--
-- If RemoveOfUniqueKey waits for another statement that changes the row, it finds no row. So a
-- statement that replaces a message deletes it once more: it begins later, and sees the message
-- where it is then.
--
-- A transaction with a snapshot still sees a message that was removed since, and skipping for that
-- one would lose a notification. So there a message counts only if no later transaction has
-- removed, moved or locked it: xmax is that of the row itself, not of the snapshot. A lock of the
-- row would show the same, but the forwarder would then wait for this transaction.
WITH
-- if replace
d AS (
WITH r AS MATERIALIZED (SELECT m.*
FROM postbox_unique_keys u
CROSS JOIN LATERAL (VALUES (0::smallint), (1::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE u.digest = :digest)
DELETE FROM postbox_messages m
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.state) IN (SELECT part, id, state FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END),
-- end
k AS (
	UPDATE postbox_unique_keys u SET lane = :lane::smallint, id = nextval('postbox_messages_id_seq'), created_at = (date_part('epoch', statement_timestamp()) * 1000000)::bigint
	WHERE u.digest = :digest
-- if none
	  AND (SELECT 1 FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.xmax AS touched
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m
	WHERE m.touched = 0 OR current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') LIMIT 1) IS NULL
-- end
	RETURNING u.id, u.spool, u.lane, u.created_at)
-- if ready
INSERT INTO postbox_messages (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
-- end
-- if waiting
INSERT INTO postbox_waiting (id, spool, lane, state, key_hash, available_at, created_at, topic, message_id, ordering_key, payload, metadata)
-- end
SELECT k.id, k.spool, k.lane, :state::smallint, :key_hash::bigint, CASE WHEN :due::bigint > 0 THEN :due::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :delay::bigint END, k.created_at,
       :topic::text, :message_id::bytea, :key::bytea, :payload::bytea, :metadata::bytea
FROM k

-- Messages are read -------------------------------------------------------------------------------

-- name: Fetch
-- Ready messages of each lane, messages that are due, and a row about the spool and the server.
--
-- Each lane takes one index descent; the planner must not turn that into a scan of the whole table.
-- What is due is found by a function, whose settings make the planner use the index.
--
-- "ordered" is a read that leaves out nothing else than what stands behind a retry, "some" one that
-- leaves out topics or keys, too: the planner expects a list of topics or keys to exclude half of
-- the messages, whatever is in it, and so to read twice as many.
--
-- stuck are up to 16 messages with a key that wait for another attempt, read once. For nearly every
-- message they show what it waits behind, without an index lookup: mostly there is none, and if
-- many messages wait behind one, few are stuck. If stuck contains all such messages, a message of
-- another key may run, and a message behind all of them waits. The lookup is there once. The
-- planner adds the cost of a search for each message that it expects, though hardly any search is
-- made. From a cost of a hundred thousand on it compiles the statement, which takes longer than
-- running it. An EXISTS in place of the lookup would lose the order of the index.
--
-- A mark costs a transaction id. The end of a snapshot is no substitute: it is one above the last
-- transaction that ended, and many running transactions may have higher ids. The sequence is read
-- first, since the id depends on its value. It is read by the function, which waits for a running
-- nextval. A SELECT from the sequence does not wait, and that nextval may have set it to the end of
-- the ids that it writes to the log ahead. NULL means that the sequence has given no id. From
-- version 17 on it may also mean that the role may not read the sequence; then the SELECT beside it
-- is an error.
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck(:spool, 16))
SELECT f.* FROM unnest((SELECT :lanes::smallint[]), (SELECT :after::bigint[]), (SELECT :up_to::bigint[])) AS c(lane, after, up_to)
CROSS JOIN LATERAL (
	SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline::bigint THEN m.payload END AS payload
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND ((m.created_at << 20) | (m.id & 1048575)) NOT IN (SELECT unnest(:known::bigint[]))
-- if ordered
	  AND CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END
-- end
-- if some
	  AND m.topic NOT IN (SELECT unnest(:excluded::text[]))
	  AND ((SELECT :unordered::boolean) OR CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END)
	  AND (NOT (SELECT :paused::boolean) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT unnest(:held::bigint[]) AS n))
-- end
	ORDER BY m.id LIMIT (SELECT :page::bigint)) f
UNION ALL
SELECT m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline::bigint THEN m.metadata END AS metadata,
	CASE WHEN COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) <= :inline::bigint THEN m.payload END AS payload
FROM postbox_due((SELECT :spool::integer), :lanes::smallint[], :known::bigint[], :excluded::text[], :held::bigint[], :unordered, :paused, :due) m
UNION ALL
SELECT -1::smallint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, (SELECT COUNT(*) FROM postbox_lanes l WHERE l.spool = :spool AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)))::smallint,
       CASE WHEN a.given >= 0 AND :mark::boolean THEN pg_current_xact_id()::text::bigint END, (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1)::integer,
       COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = :spool), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'), pg_current_snapshot()::text::bytea, NULL, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, a.given, NULL, NULL
FROM (SELECT COALESCE(pg_sequence_last_value('postbox_messages_id_seq'::regclass), (SELECT 0 * s.last_value FROM postbox_messages_id_seq s)) AS given OFFSET 0) a

-- name: Sweep
-- The part of a Fetch that reads ready messages, with an upper bound.
WITH stuck AS MATERIALIZED (SELECT ordering_key, id FROM postbox_stuck(:spool, 16))
SELECT c.lane, (
	SELECT m.id
	FROM ONLY postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
	  AND m.id NOT IN (SELECT unnest(:known::bigint[])) AND m.topic NOT IN (SELECT unnest(:excluded::text[]))
	  AND ((SELECT :unordered::boolean) OR CASE
	WHEN CASE WHEN m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck)) THEN m.id >= (SELECT MAX(id) FROM stuck)
		ELSE (SELECT COUNT(*) FROM stuck) < 16 END
	THEN (m.ordering_key = ANY(ARRAY(SELECT ordering_key FROM stuck))) IS NOT TRUE
	ELSE (m.key_hash IS NULL OR (
	SELECT 1 FROM postbox_waiting b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id
	ORDER BY b.id LIMIT 1) IS NULL) END)
	  AND (NOT (SELECT :paused::boolean) OR (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_pauses z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key)))
	  AND (m.key_hash IS NULL OR m.key_hash NOT IN (SELECT unnest(:held::bigint[]) AS n))
	ORDER BY m.id LIMIT 1) AS id
FROM unnest((SELECT :lanes::smallint[]), (SELECT :after::bigint[]), (SELECT :up_to::bigint[])) AS c(lane, after, up_to)

-- name: LoadPayload
-- Payload and metadata of a message.
SELECT payload, metadata FROM postbox_messages WHERE spool = :spool AND state = (SELECT :state::smallint) AND lane = :lane AND id = :id AND created_at = :created_at

-- name: Writers
-- The transactions that hold the lock that an INSERT takes on the table and keeps until the
-- transaction ends: the low 32 bits of their ids. A transaction that was prepared by another
-- session has no session. While its locks change hands, only its virtual transaction identifies it.
WITH l AS MATERIALIZED (SELECT locktype, relation, database, mode, transactionid, virtualtransaction FROM pg_locks),
w AS MATERIALIZED (
	SELECT virtualtransaction FROM l
	WHERE locktype = 'relation' AND relation = 'postbox_messages'::regclass AND mode = 'RowExclusiveLock'
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
SELECT transactionid::text::bigint FROM l
WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND virtualtransaction IN (SELECT virtualtransaction FROM w)
UNION
SELECT split_part(virtualtransaction, '/', 2)::bigint FROM w WHERE virtualtransaction LIKE '-1/%'

-- name: IdleLook
-- All that a drainer executes which has nothing to do while the log of its database tells what
-- happens: it renews the lease, and tells whether it has, how many members live, the version of the
-- spool, the incarnation of the server, whether there is a message in one of the ranges, and in how
-- many microseconds the first message is due that waits for its time.
WITH renewed AS (
	UPDATE postbox_members SET in_flight = :in_flight, expires_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :ttl WHERE spool = :spool AND holder = :holder
	RETURNING 1)
SELECT (SELECT COUNT(*) FROM renewed), (SELECT COUNT(*) FROM postbox_members w WHERE w.spool = :spool AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND w.sharing = 1), COALESCE((SELECT v.version FROM postbox_spools v WHERE v.id = :spool), -1), COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages'),
       COALESCE((
	SELECT TRUE FROM unnest(:lanes::smallint[], :after::bigint[], :up_to::bigint[]) AS c(lane, after, up_to)
	CROSS JOIN LATERAL (
		SELECT m.id FROM ONLY postbox_messages m
		WHERE m.spool = :spool AND m.state = 0 AND m.lane = c.lane AND m.id > c.after AND m.id <= c.up_to
		ORDER BY m.id LIMIT 1) f
	LIMIT 1), FALSE),
       COALESCE((SELECT m.available_at FROM postbox_waiting m WHERE m.spool = :spool ORDER BY m.available_at LIMIT 1), 9223372036854775807) - (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- Messages are settled ----------------------------------------------------------------------------

-- name: Find
-- "lock" locks the rows that no other transaction has locked.
SELECT m.id
FROM unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]))
	AS s(state, lane, token, id, created_at)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1
-- if lock
	FOR UPDATE SKIP LOCKED
-- end
	) AS m

-- name: FindAsRead
-- The lanes are read once: IS TRUE keeps the planner from making a join of it.
SELECT m.id
FROM unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]),
	(SELECT :attempts::integer[]), (SELECT :least::smallint[]), (SELECT :most::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1
-- if lock
	FOR UPDATE SKIP LOCKED
-- end
	) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = :spool)) IS TRUE

-- name: CountStarts
-- Applies to the messages that were found, if they are unchanged. They are looked up in a hash, so
-- a plan that was made for a nearly empty table, and reads all of it, does so once.
WITH r AS MATERIALIZED (SELECT m.*
FROM unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]),
	(SELECT :attempts::integer[]), (SELECT :least::smallint[]), (SELECT :most::smallint[]))
	AS s(state, lane, token, id, created_at, attempts, least, most)
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = :spool)) IS TRUE)
UPDATE postbox_messages m SET starts = m.starts + 1
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.starts) IN (SELECT part, id, starts FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END

-- name: TakeBackStarts
WITH r AS MATERIALIZED (SELECT m.*
FROM (SELECT state, lane, id, created_at
	FROM unnest((SELECT :lanes::smallint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[])) AS r(lane, id, created_at),
	     (VALUES (0::smallint), (1::smallint), (2::smallint)) AS t(state)) AS s
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1) AS m)
UPDATE postbox_messages m SET starts = m.starts - 1
WHERE m.ctid = ANY(ARRAY(SELECT place FROM r))
  AND ((m.tableoid, m.id, m.starts) IN (SELECT part, id, starts FROM r)) IS TRUE
  AND CASE WHEN m.starts >= -32768 THEN TRUE ELSE m.topic @@ ANY(array_fill(''::text, ARRAY[40])) END
  AND m.starts > 0

-- name: RemoveOne
-- One message that was ready, with less work than the function. The server must be one of the list,
-- or there is no list: it is asked once, and not for each message.
DELETE FROM ONLY postbox_messages m
USING postbox_lanes l
WHERE m.spool = :spool AND m.state = 0 AND m.lane = :lane AND m.id = :id AND m.created_at = :created_at
  AND l.spool = m.spool AND l.lane = m.lane AND l.token = :token
  AND (SELECT :servers::text IS NULL OR strpos(:servers::text, '|' || COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages') || '|') > 0)

-- name: Remove
-- Messages in any state: the migration has the function. The statement has an empty row for each of
-- them, so a driver counts them as it does for a DELETE.
SELECT FROM (SELECT generate_series(1, CASE WHEN (SELECT :servers::text IS NULL OR strpos(:servers::text, '|' || COALESCE(NULLIF(current_setting('postbox.server', true), ''), set_config('postbox.server',
	extract(epoch FROM GREATEST(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()))::text, false)) || ' ' || pg_relation_filenode('postbox_messages') || '|') > 0)
	THEN postbox_remove(:spool, :states::smallint[], :lanes::smallint[], :tokens::bigint[], :ids::bigint[], :times::bigint[]) ELSE 0 END)) AS removed

-- name: Keep
-- Copies messages that are done to the history. Run it before the removal.
INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts, took, process)
SELECT m.id, m.spool, m.topic, m.message_id, m.ordering_key, m.payload, m.metadata, m.created_at, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.attempts + 1, s.took,
       (SELECT l.holder FROM postbox_lanes l WHERE l.spool = :spool AND l.lane = m.lane)
FROM unnest((SELECT :states::smallint[]), (SELECT :lanes::smallint[]), (SELECT :tokens::bigint[]), (SELECT :ids::bigint[]), (SELECT :times::bigint[]),
	(SELECT :took::bigint[])) AS s(state, lane, token, id, created_at, took)
CROSS JOIN LATERAL (
	SELECT m.*
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = :spool)) IS TRUE
ON CONFLICT DO NOTHING

-- name: SettleFailed
-- Moves messages that were ready or are dead, and changes those that have waited before, so that
-- who waits for the lock of such a row finds it. A trigger of the user may keep a message out of
-- the other table without an error, and then fewer messages are settled than were given.
WITH s AS MATERIALIZED (
	SELECT * FROM json_to_recordset(:failed::json) AS s(state smallint, lane smallint, token bigint, id bigint, created_at bigint,
		attempts integer, least smallint, most smallint, delay bigint, added integer, back smallint, cause smallint, attempt integer, error text)),
r AS MATERIALIZED (
	SELECT m.*, s.cause IS NOT NULL OR s.state = 0 AS moves
FROM s
CROSS JOIN LATERAL (
	SELECT m.ctid AS place, m.tableoid AS part, m.id, m.state, m.starts
	FROM postbox_messages m
	WHERE m.spool = (SELECT :spool::integer) AND m.state = s.state AND m.lane = s.lane AND m.id BETWEEN s.id AND s.id AND m.created_at = s.created_at AND m.attempts = s.attempts AND m.starts BETWEEN s.least AND s.most
	ORDER BY m.id
	LIMIT 1) AS m
WHERE ((s.lane, s.token) IN (SELECT l.lane, l.token FROM postbox_lanes l WHERE l.spool = :spool)) IS TRUE),
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
	SELECT 'm'::bytea || int8send(m.id) || int8send(m.created_at), m.attempt, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, m.error, :process::text
	FROM s m WHERE m.attempt IS NOT NULL
	ORDER BY m.id)
SELECT (SELECT COUNT(*) FROM w) + (SELECT COUNT(*) FROM x) + (SELECT COUNT(*) FROM u)

-- name: InsertFailure
INSERT INTO postbox_failures (subject, attempt, failed_at, error, process) VALUES (:subject, :attempt, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, :error, :process)

-- name: LastAttempt
-- A requeue leaves an entry with attempt 0, so the last entry gives the number of attempts since
-- then.
SELECT attempt FROM postbox_failures WHERE subject = :subject ORDER BY id DESC LIMIT 1

-- name: InsertDeadLetter
-- What was not stored as a message: of an inbox, or without a consumer of a row of a source.
INSERT INTO postbox_dead_letters (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (CASE WHEN :consumer::text = '' THEN 0 ELSE 1 END, :subject, :spool, :consumer, :topic, :message_id, :source, :carried_id, :key, :key_hash,
        :payload, :metadata, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, :attempts, :error, :cause)

-- Claims ------------------------------------------------------------------------------------------

-- name: Claim
-- A second claim of the same key waits for the transaction of the first and then changes no row.
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) ON CONFLICT DO NOTHING

-- name: FindClaim
-- 1, or no row.
SELECT 1 FROM postbox_claims WHERE claim_key = :claim

-- name: LockClaim
-- A second claim waits for the transaction of the first.
INSERT INTO postbox_claims (claim_key, claimed_at) VALUES (:claim, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
ON CONFLICT (claim_key) DO UPDATE SET claimed_at = 0

-- name: RemoveClaim
DELETE FROM postbox_claims WHERE claim_key = :claim

-- name: ClaimsPage
-- One row for any page size: the end of the page, its number of keys, and how many of them are old.
WITH p AS (SELECT claim_key, claimed_at FROM postbox_claims WHERE claim_key > :after ORDER BY claim_key LIMIT :limit)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - :retention THEN 1 ELSE 0 END), 0)
FROM p

-- name: PurgeClaims
-- Bounded by the two keys that ClaimsPage returned.
DELETE FROM postbox_claims WHERE claim_key > :after AND claim_key <= :up_to AND claimed_at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - :retention

-- Chores ------------------------------------------------------------------------------------------

-- name: AddChore
INSERT INTO postbox_chores (name) VALUES (:name) ON CONFLICT DO NOTHING

-- name: TakeChore
UPDATE postbox_chores SET holder = :holder, expires_at = CASE WHEN :ttl::bigint > 0 THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :ttl ELSE 0 END
WHERE name = :name AND (holder = :holder OR expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)

-- name: ChoreCursor
-- Its progress.
SELECT progress FROM postbox_chores WHERE name = :name

-- name: SaveChore
UPDATE postbox_chores SET progress = :progress WHERE name = :name AND holder = :holder

-- name: PurgeDeadLetters
-- The oldest rows, in the order of an index. The clock is in a subquery, which runs once: if the
-- time were compared with a volatile function, the index would be read to its end.
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool = :spool AND died_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY died_at LIMIT :limit)

-- name: PurgeOthers
DELETE FROM postbox_dead_letters WHERE id IN (
	SELECT id FROM postbox_dead_letters WHERE spool IS NULL AND died_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY died_at LIMIT :limit)

-- name: PurgeFailures
DELETE FROM postbox_failures WHERE id IN (
	SELECT id FROM postbox_failures WHERE failed_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY failed_at LIMIT :limit)

-- name: PurgeHistory
DELETE FROM postbox_history WHERE (id, done_at) IN (
	SELECT id, done_at FROM postbox_history WHERE spool = :spool AND done_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY done_at LIMIT :limit)

-- name: PurgeAudit
DELETE FROM postbox_audit WHERE id IN (
	SELECT id FROM postbox_audit WHERE acted_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY acted_at LIMIT :limit)

-- name: PurgeReceipts
DELETE FROM postbox_receipts WHERE receipt_key IN (
	SELECT receipt_key FROM postbox_receipts WHERE state = :state AND due_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :retention::bigint ORDER BY state, due_at, receipt_key LIMIT :limit)

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
       CASE WHEN EXISTS (SELECT 1 FROM postbox_members w WHERE w.spool = g.spool AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint) THEN 0
            WHEN (SELECT m.created_at FROM postbox_messages m WHERE m.spool = g.spool AND m.state = 0 ORDER BY m.spool, m.state, m.lane, m.id LIMIT 1)
                 < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - :age::bigint THEN 1
            WHEN EXISTS (SELECT 1 FROM postbox_messages m WHERE m.spool = g.spool AND m.state IN (1, 2) AND m.available_at < (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) - :age::bigint) THEN 1
            ELSE 0 END
FROM (SELECT MIN(spool) AS spool FROM postbox_messages WHERE spool > :after) g
LEFT JOIN postbox_spools s ON s.id = g.spool

-- name: UniqueKeysPage
-- With the LIMIT, the planner cannot make a join of it, which might read the whole table.
SELECT u.digest, u.id, u.created_at, CASE WHEN (SELECT 1 FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS s(state)
CROSS JOIN LATERAL (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = u.spool AND m.state = s.state AND m.lane = u.lane AND m.id BETWEEN u.id AND u.id AND m.created_at = u.created_at
	ORDER BY m.id
	LIMIT 1) AS m LIMIT 1) IS NULL THEN 1 ELSE 0 END
FROM postbox_unique_keys u WHERE u.digest > :after::bytea ORDER BY u.digest LIMIT :limit

-- name: RemoveUniqueKey
DELETE FROM postbox_unique_keys WHERE digest = :digest AND id = :id AND created_at = :created_at

-- What operators see, and what they say -----------------------------------------------------------

-- name: Spools
-- Name, version, pause, settings, paused keys and paused topics of a spool, or with 0 of all.
SELECT s.id, s.name, s.version, CASE WHEN s.pause_ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN s.paused_at END, s.paused_by, s.pause_reason, s.pause_ends_at, s.settings,
       (SELECT COUNT(*) FROM postbox_pauses p WHERE p.spool = s.id), (SELECT COUNT(*) FROM postbox_topic_pauses t WHERE t.spool = s.id AND t.ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
FROM postbox_spools s
WHERE :spool::bigint = 0 OR s.id = :spool

-- name: Members
-- Spool, holder, in flight and end of the membership of each live member, of the spool or with 0 of
-- all.
SELECT spool, holder, in_flight, expires_at FROM postbox_members
WHERE :spool IN (0, spool) AND expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint AND sharing = 1
ORDER BY spool, holder

-- name: Clock
SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint

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

-- name: SettingsOf
SELECT settings FROM postbox_spools WHERE id = :spool

-- name: PausedKeys
-- Key, since when, by whom, reason, end.
SELECT ordering_key, paused_at, paused_by, reason, 9223372036854775807 FROM postbox_pauses WHERE spool = :spool ORDER BY paused_at, id

-- name: PausedTopics
-- Topic, since when, by whom, reason, end.
SELECT topic, paused_at, paused_by, reason, ends_at FROM postbox_topic_pauses WHERE spool = :spool AND ends_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint ORDER BY paused_at, topic

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
INSERT INTO postbox_history (id, spool, topic, message_id, source_topic, carried_id, ordering_key, payload, metadata, created_at, done_at, attempts, omitted, took, process)
SELECT n.clock - :since::bigint, :spool::bigint, :topic::text, :message_id::bytea, :source::text, :carried_id::bytea, :key::bytea, :payload::bytea, :metadata::bytea, n.clock - :since::bigint, n.clock, 0, :omitted::bigint, :since::bigint, :process::text
FROM (SELECT CASE WHEN :clock::bigint > 0 THEN :clock::bigint ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint END AS clock FROM postbox_claims WHERE claim_key = :claim ORDER BY claim_key LIMIT 1) n
ON CONFLICT DO NOTHING

-- name: RecordAct
INSERT INTO postbox_audit (operation, acted_at, actor, action, target, subject, filter, affected, note)
VALUES (:operation, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, :actor, :action, :target, :subject, :filter, :affected, :note) ON CONFLICT DO NOTHING

-- Receipts ----------------------------------------------------------------------------------------

-- name: AwaitReceipts
-- A receipt that came before is kept: the row of a message that another program published may be
-- older than what awaits it. The row is repeated for each receipt.
INSERT INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, sent_at, due_at)
VALUES (:key, 0, :topic, :message_id, :consumer, COALESCE(:sent::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :delay), COALESCE(:due::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + :until))
ON CONFLICT DO NOTHING

-- name: ChangeReceipt
UPDATE postbox_receipts SET state = :state, handled_at = :handled_at, received_at = CASE WHEN :handled_at::bigint IS NOT NULL THEN (date_part('epoch', clock_timestamp()) * 1000000)::bigint END
WHERE receipt_key = :key AND state = :was

-- name: AddReceipt
INSERT INTO postbox_receipts (receipt_key, state, topic, message_id, consumer, due_at, handled_at, received_at)
VALUES (:key, 2, :topic, :message_id, :consumer, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, :handled_at, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) ON CONFLICT DO NOTHING

-- name: ReceiptPage
-- By the index on state and time. The rows of the last time of the page before are read again.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE state = :state AND due_at >= :due_at AND due_at <= (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + :ahead::bigint AND (due_at > :due_at OR receipt_key > :key)
ORDER BY state, due_at, receipt_key
LIMIT :limit

-- name: ReceiptsOf
-- By the primary key, which begins with the message.
SELECT receipt_key, topic, message_id, consumer, state, COALESCE(sent_at, 0), due_at, COALESCE(handled_at, 0), COALESCE(received_at, 0) FROM postbox_receipts
WHERE receipt_key >= :first AND receipt_key <= :last AND message_id = :message_id
ORDER BY receipt_key
LIMIT :limit
