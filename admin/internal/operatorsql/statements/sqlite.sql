-- Statements that operators alone execute, as they run on SQLite. Those of the engine, and how such
-- a file is read, are in internal/dialect/statements. Numbers with names come as one argument in
-- JSON.

-- One outbox, queue or inbox ----------------------------------------------------------------------

-- name: Account
-- All messages in one snapshot, so that a message that moves meanwhile is counted once: pending,
-- done, dead, and dead ones that are resolved.
SELECT (SELECT COUNT(*) FROM postbox_messages m WHERE m.spool = s.id),
       (SELECT COUNT(*) FROM postbox_history h WHERE h.spool = s.id),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NULL),
       (SELECT COUNT(*) FROM postbox_dead_letters d WHERE d.spool = s.id AND d.origin = 0 AND d.resolved_at IS NOT NULL)
FROM postbox_spools s
WHERE s.id = :spool

-- name: LaneHolders
-- Lane, holder or an empty text, token, end of the lease, suspect, and 1 if the lease lasts.
SELECT l.lane, COALESCE(l.holder, ''), l.token, COALESCE(w.expires_at, 0), l.suspect, CASE WHEN w.expires_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN 1 ELSE 0 END
FROM postbox_lanes l
LEFT JOIN postbox_members w ON w.spool = l.spool AND w.holder = l.holder
WHERE l.spool = :spool
ORDER BY l.lane

-- name: ChangeSpool
-- Lets its drainers notice.
UPDATE postbox_spools SET version = version + 1 WHERE id = :spool

-- name: LockSettings
-- Locks the row without the rights that SELECT … FOR UPDATE needs on MySQL.
UPDATE postbox_spools SET settings = settings WHERE id = :spool

-- name: SetSettings
-- No row if they are equal to the stored ones.
UPDATE postbox_spools SET settings = :settings WHERE id = :spool AND settings <> :settings

-- name: PauseSpool
-- These change a row only if that changes something.
UPDATE postbox_spools AS s SET paused_at = CASE WHEN :pause = 1 THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) END, paused_by = :by, pause_reason = :reason, pause_ends_at = :ends
WHERE s.id = :spool AND (CASE WHEN CASE WHEN s.pause_ends_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN s.paused_at END IS NULL THEN 0 ELSE 1 END <> :pause OR (:pause = 1 AND (s.pause_reason <> :reason OR s.pause_ends_at <> :ends)))

-- name: PauseKey
INSERT INTO postbox_pauses (spool, key_hash, ordering_key, paused_at, paused_by, reason)
SELECT s.id, :hash, :key, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :by, :reason FROM postbox_spools s
WHERE s.id = :spool AND NOT EXISTS (SELECT 1 FROM postbox_pauses z WHERE z.spool = s.id AND z.key_hash = :hash AND z.ordering_key = :key)

-- name: ResumeKey
DELETE FROM postbox_pauses WHERE spool = :spool AND key_hash = :hash AND ordering_key = :key

-- name: ReplaceTopicPause
-- Ends the pause of a topic that has another reason or end, and deletes what is left of pauses that
-- have ended.
DELETE FROM postbox_topic_pauses WHERE spool = :spool AND (ends_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) OR (topic = :topic AND (reason <> :reason OR ends_at <> :ends)))

-- name: PauseTopic
INSERT OR IGNORE INTO postbox_topic_pauses (spool, topic, paused_at, paused_by, reason, ends_at) VALUES (:spool, :topic, CAST(unixepoch('subsec') * 1000000 AS INTEGER), :by, :reason, :ends)

-- name: ResumeTopic
DELETE FROM postbox_topic_pauses WHERE spool = :spool AND topic = :topic

-- Lists of messages -------------------------------------------------------------------------------

-- name: SearchPending
-- The first part has the messages to look at, as a walk along the index. Since all parts are of one
-- snapshot, the last one of these is where the next search begins, and no message is left out. The
-- size is read of those only that are found, because it may be stored elsewhere, and by a subquery,
-- because PostgreSQL without statistics would join the whole table.
--
-- One more row has as its first column how many messages were looked at, unless there was none, and
-- the place of the last of these.
WITH p AS (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, m.available_at
	FROM postbox_messages m
	WHERE m.spool = :spool AND (m.state, m.lane, m.id) > (:state, :lane, :id) AND m.state <= :last_state
	ORDER BY m.state, m.lane, m.id
	LIMIT :among)
SELECT 0 AS looked, f.state, f.lane, f.id, f.topic, f.message_id, f.ordering_key, f.attempts, f.created_at, f.due,
	(SELECT COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) FROM postbox_messages m WHERE m.spool = :spool AND m.state = f.state AND m.lane = f.lane AND m.id = f.id) AS size,
	0 AS omitted, 0 AS took, '' AS process
FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END AS due
	FROM p m WHERE m.available_at >= (:bounds ->> 'due_from') AND m.available_at < (:bounds ->> 'due_before')
  AND m.attempts >= (:bounds ->> 'least_attempts') AND m.created_at >= (:bounds ->> 'created_from') AND m.created_at < (:bounds ->> 'created_before')
  AND (:error = '' OR instr((SELECT f.error FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject DESC, f.id DESC LIMIT 1), :error) > 0)
  AND (:topic = '' OR m.topic = :topic)
  AND (octet_length(:key) = 0 OR m.ordering_key = :key)
  AND (octet_length(:message_id) = 0 OR m.message_id = :message_id) ORDER BY m.state, m.lane, m.id LIMIT :most) f
UNION ALL
SELECT l.* FROM (
	SELECT (SELECT COUNT(*) FROM p) AS looked, m.state, m.lane, m.id, '' AS topic, m.message_id, m.ordering_key, 0 AS attempts, m.created_at, 0 AS due, 0 AS size, 0 AS omitted, 0 AS took, '' AS process
	FROM p m ORDER BY m.state DESC, m.lane DESC, m.id DESC LIMIT 1) l

-- name: RetryingOfKey
-- Those of a key that failed are few, and side by side in an index. SQLite without statistics, and
-- PostgreSQL with them, would read all that failed, so a limit keeps conditions outside.
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, 0 AS took, '' AS process
FROM (SELECT r.* FROM postbox_messages r INDEXED BY postbox_messages_retrying WHERE r.spool = :spool AND r.state = 2 AND r.key_hash = :hash ORDER BY r.id LIMIT 1000000000) m
WHERE (m.state, m.lane, m.id) > (:state, :lane, :id)
  AND m.state <= :last_state AND m.available_at >= (:bounds ->> 'due_from') AND m.available_at < (:bounds ->> 'due_before')
  AND m.attempts >= (:bounds ->> 'least_attempts') AND m.created_at >= (:bounds ->> 'created_from') AND m.created_at < (:bounds ->> 'created_before')
  AND (:error = '' OR instr((SELECT f.error FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject DESC, f.id DESC LIMIT 1), :error) > 0)
  AND (:topic = '' OR m.topic = :topic)
  AND (octet_length(:key) = 0 OR m.ordering_key = :key)
  AND (octet_length(:message_id) = 0 OR m.message_id = :message_id)
ORDER BY m.state, m.lane, m.id
LIMIT :most

-- name: DoneMessages
-- Walks the index on spool and time backwards.
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, h.took, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = :spool AND h.done_at <= :last AND (h.done_at < :last OR h.id < :last_id)
  AND h.done_at >= :done_from AND h.done_at < :done_before
  AND (:topic = '' OR h.topic = :topic)
  AND (octet_length(:key) = 0 OR h.ordering_key = :key)
  AND (octet_length(:message_id) = 0 OR h.message_id = :message_id)
ORDER BY h.done_at DESC, h.id DESC
LIMIT :most

-- name: DoneInOrder
-- Walks the primary key, because messages of a key were written in the order of their ids. Rows
-- that the filter leaves out are still read.
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, h.took, COALESCE(h.process, '')
FROM postbox_history h
WHERE h.spool = :spool AND h.id >= :last_id AND (h.id > :last_id OR h.created_at > :last)
  AND h.done_at >= :done_from AND h.done_at < :done_before
  AND (:topic = '' OR h.topic = :topic)
  AND (octet_length(:key) = 0 OR h.ordering_key = :key)
  AND (octet_length(:message_id) = 0 OR h.message_id = :message_id)
ORDER BY h.id, h.created_at
LIMIT :most

-- One message -------------------------------------------------------------------------------------

-- name: PendingMessage
-- With a descent of the primary key for each state and lane, where the id is its last column.
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, 0 AS took, '' AS process, m.payload, m.metadata, '', m.message_id
FROM postbox_messages m
WHERE m.spool = :spool AND m.id = :id

-- name: DoneMessage
-- The latest one, if the database has issued the id again, unless a time is given.
SELECT 3, 0, h.id, h.topic, h.message_id, h.ordering_key, h.attempts, h.created_at, h.done_at,
	COALESCE(octet_length(h.payload), 0) + octet_length(h.metadata) AS size, h.omitted, h.took, COALESCE(h.process, ''), h.payload, h.metadata, COALESCE(h.source_topic, ''), COALESCE(h.carried_id, h.message_id)
FROM postbox_history h
WHERE h.spool = :spool AND h.id = :id AND (:created_at = 0 OR h.created_at = :created_at)
ORDER BY h.created_at DESC
LIMIT 1

-- name: LockListed
-- A drainer that settles the message waits for the transaction that has locked it, and vice versa.
-- State, lane, created at, 1 if it is parked, 1 if it is due, due at, attempts.
SELECT m.state, m.lane, m.created_at, CASE WHEN m.state = 2 AND m.available_at >= 4611686018427387904 THEN 1 ELSE 0 END, CASE WHEN m.available_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN 1 ELSE 0 END, m.available_at, m.attempts
FROM postbox_messages m
WHERE m.spool = :spool AND m.state = :state AND m.lane = :lane AND m.id = :id

-- name: SetDue
-- This and the next two are for a message that LockListed has locked. A parked message has no
-- attempt left, and gets all of them again. MySQL assigns columns in this order, and later
-- assignments see the new values.
UPDATE postbox_messages SET
	attempts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE attempts END,
	starts = CASE WHEN available_at >= 4611686018427387904 THEN 0 ELSE starts END,
	available_at = CASE WHEN :at > 0 THEN :at WHEN available_at > CAST(unixepoch('subsec') * 1000000 AS INTEGER) THEN CAST(unixepoch('subsec') * 1000000 AS INTEGER) ELSE available_at END
WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id

-- name: BuryWaiting
INSERT INTO postbox_dead_letters (origin, subject, error, cause, spool, consumer, topic, message_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts)
SELECT 0, :subject, :error, :cause, m.spool, '', m.topic, m.message_id, m.ordering_key, m.key_hash,
       m.payload, m.metadata, m.created_at, CAST(unixepoch('subsec') * 1000000 AS INTEGER), m.attempts
FROM postbox_messages m
WHERE m.spool = :spool AND m.state = :state AND m.lane = :lane AND m.id = :id

-- name: RemoveMessage
DELETE FROM postbox_messages WHERE spool = :spool AND state = :state AND lane = :lane AND id = :id

-- name: MessageOfUniqueKey
-- The message that was stored last under it, which may be gone.
SELECT id, created_at FROM postbox_unique_keys WHERE digest = :digest

-- name: Failures
-- The latest entries of a subject and of what it was before, oldest first.
SELECT attempt, failed_at, error, process
FROM (
	SELECT * FROM (SELECT id, attempt, failed_at, error, process FROM postbox_failures WHERE subject = :subject ORDER BY id DESC LIMIT :most) s
	UNION ALL
	SELECT * FROM (SELECT id, attempt, failed_at, error, process FROM postbox_failures WHERE subject = :before ORDER BY id DESC LIMIT :most) b) f
ORDER BY id

-- name: RenameFailures
-- When a message of an outbox or a queue is requeued, and so gets another number.
UPDATE postbox_failures SET subject = :renamed WHERE subject = :subject

-- Dead letters ------------------------------------------------------------------------------------

-- name: DeadLetter
-- Payload and metadata are left out of lists: each may have megabytes, and a page has many letters.
-- The last column is when it failed first.
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(octet_length(d.payload), 0) + octet_length(d.metadata) AS size, d.payload, d.metadata, COALESCE(d.source_topic, ''), COALESCE(d.carried_id, d.message_id),
	COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = d.subject ORDER BY f.subject, f.id LIMIT 1), d.died_at)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id = :id

-- name: DeadLetters
-- Walks the primary key, for the newest ones backwards. The limit bounds the page. COALESCE keeps
-- all letters of an outbox or a queue unread.
SELECT d.id, d.origin, d.subject, COALESCE(d.spool, 0), COALESCE(s.name, '') AS spool_name, d.consumer, d.topic,
	d.message_id, d.ordering_key, d.created_at, d.died_at, d.attempts, d.cause, d.error, d.resolved_at, d.resolution,
	COALESCE(octet_length(d.payload), 0) + octet_length(d.metadata) AS size
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > :after AND d.id <= :up_to
  AND (:topic = '' OR d.topic = :topic)
  AND (:consumer = '' OR d.consumer = :consumer)
  AND (:spool = '' OR COALESCE(s.name, '') = :spool)
  AND (octet_length(:message_id) = 0 OR d.message_id = :message_id)
  AND (octet_length(:key) = 0 OR d.ordering_key = :key)
  AND (:error = '' OR instr(d.error, :error) > 0)
  AND d.cause >= (:bounds ->> 'least_cause') AND d.cause <= (:bounds ->> 'most_cause')
  AND d.attempts >= (:bounds ->> 'least_attempts') AND d.attempts <= (:bounds ->> 'most_attempts')
  AND d.died_at >= (:bounds ->> 'died_from') AND d.died_at < (:bounds ->> 'died_before')
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> (:bounds ->> 'unwanted')
ORDER BY d.id
-- if newest
DESC
-- end
LIMIT :most

-- name: DeadLetterErrors
-- The newest ones. A part of each error is enough, and bounds the bytes.
SELECT d.id, d.died_at, COALESCE(s.name, '') AS spool_name, d.consumer, d.topic, SUBSTR(d.error, 1, 512)
FROM postbox_dead_letters d
LEFT JOIN postbox_spools s ON s.id = d.spool
WHERE d.id > :after AND d.id <= :up_to
  AND (:topic = '' OR d.topic = :topic)
  AND (:consumer = '' OR d.consumer = :consumer)
  AND (:spool = '' OR COALESCE(s.name, '') = :spool)
  AND (octet_length(:message_id) = 0 OR d.message_id = :message_id)
  AND (octet_length(:key) = 0 OR d.ordering_key = :key)
  AND (:error = '' OR instr(d.error, :error) > 0)
  AND d.cause >= (:bounds ->> 'least_cause') AND d.cause <= (:bounds ->> 'most_cause')
  AND d.attempts >= (:bounds ->> 'least_attempts') AND d.attempts <= (:bounds ->> 'most_attempts')
  AND d.died_at >= (:bounds ->> 'died_from') AND d.died_at < (:bounds ->> 'died_before')
  AND CASE WHEN d.resolved_at IS NULL THEN 0 ELSE 1 END <> (:bounds ->> 'unwanted')
ORDER BY d.id DESC
LIMIT :most

-- name: LetterEnds
-- How many of so many there are between two ids, from the lowest on or from the highest, and the
-- lowest and the highest of these. Walks the primary key.
SELECT COUNT(*), COALESCE(MIN(p.id), 0), COALESCE(MAX(p.id), 0)
FROM (
	SELECT d.id FROM postbox_dead_letters d WHERE d.id > :after AND d.id <= :up_to ORDER BY d.id
-- if newest
	DESC
-- end
	LIMIT :among) p

-- name: DeleteDeadLetter
DELETE FROM postbox_dead_letters WHERE id = :id AND (resolved_at IS NULL OR :resolved = 1)

-- name: Resolve
UPDATE postbox_dead_letters SET resolved_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER), resolution = :reason WHERE id = :id AND resolved_at IS NULL

-- Stuck keys --------------------------------------------------------------------------------------

-- name: StuckHeads
-- Keys whose first message has failed. A retrying message keeps the later messages of its key
-- waiting, so nearly each one is the first of its key. Each lane is read along its index, up to a
-- limit. Failures are only looked for of what is left of all lanes.
SELECT m.*, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM (
	SELECT * FROM (
	SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, 0 AS took, '' AS process, m.key_hash FROM json_each(:after) c CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = :spool AND m.lane = c.key AND m.id > c.value AND m.state = 2 AND m.key_hash IS NOT NULL AND (m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM postbox_messages b WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))
	ORDER BY m.id LIMIT :most)) h
	ORDER BY id LIMIT :most) m
ORDER BY m.id

-- name: ReadyHeads
-- The same columns of those of these messages that are ready.
SELECT m.state, m.lane, m.id, m.topic, m.message_id, m.ordering_key, m.attempts, m.created_at, CASE WHEN m.state = 0 THEN m.created_at ELSE m.available_at END,
	COALESCE(octet_length(m.payload), 0) + octet_length(m.metadata) AS size, 0 AS omitted, 0 AS took, '' AS process, m.key_hash, COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject, f.id LIMIT 1), 0), COALESCE((SELECT f.error FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject DESC, f.id DESC LIMIT 1), '')
FROM postbox_messages m JOIN json_each(:ids) c ON m.id = c.value
WHERE m.spool = :spool AND m.state = 0

-- name: WaitingOfKeys
-- Each of the keys with ready messages: its lane, itself, the lowest id of these and their number.
SELECT MIN(w.lane), w.wanted, MIN(w.id), COUNT(*)
FROM (
	SELECT m.lane, m.id, CASE WHEN m.key_hash IN (SELECT value AS n FROM json_each(:keys)) THEN m.ordering_key END AS wanted FROM json_each(:after) c CROSS JOIN postbox_messages m ON m.id IN (
	SELECT m.id
	FROM postbox_messages m
	WHERE m.spool = :spool AND m.lane = c.key AND m.id > c.value AND m.state = 0
	ORDER BY m.id LIMIT :most)) w
GROUP BY w.lane, w.wanted

-- Counts ------------------------------------------------------------------------------------------

-- name: CountUpTo
-- Each number is of a bounded number of rows or index entries, however many there are, and none
-- needs statistics: rows are read in the order of an index, up to a limit. Deleted rows whose index
-- entries the database has not removed yet cost extra. Only retrying messages have failed attempts.
SELECT s.id AS spool,
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m WHERE m.spool = s.id AND m.state = 0 ORDER BY m.lane, m.id LIMIT :limit) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m WHERE m.spool = s.id AND m.state > 0 ORDER BY m.state, m.lane, m.id LIMIT :limit) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m INDEXED BY postbox_messages_due WHERE m.spool = s.id AND m.state > 0 AND m.available_at <= (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ORDER BY m.available_at LIMIT :limit) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_messages m INDEXED BY postbox_messages_due WHERE m.spool = s.id AND m.state > 0 AND m.state = 2 AND m.available_at >= 4611686018427387904 ORDER BY m.available_at LIMIT :limit) p),
       (SELECT COUNT(p.n) FROM (SELECT 1 AS n FROM postbox_history m WHERE m.spool = s.id ORDER BY m.done_at LIMIT :limit) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.attempts > 0 THEN 1 ELSE 0 END AS n FROM postbox_messages m WHERE m.spool = s.id AND m.state = 2 ORDER BY m.lane, m.id LIMIT :limit) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m WHERE m.spool = s.id ORDER BY m.died_at DESC LIMIT :limit) p),
       (SELECT COALESCE(SUM(p.n), 0) FROM (SELECT CASE WHEN m.origin = 0 AND m.resolved_at IS NULL THEN 1 ELSE 0 END AS n FROM postbox_dead_letters m WHERE m.spool = s.id AND m.died_at > (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - 600000000 ORDER BY m.died_at DESC LIMIT :limit) p)
FROM (SELECT value AS id FROM json_each(:spools)) s

-- name: CountStuck
-- How many keys have a retrying message, and how long ago the first of these messages failed. By
-- the index of retrying messages by key, whose entries are few and side by side.
SELECT s.id AS spool,
       (SELECT COUNT(DISTINCT p.n) FROM (SELECT m.ordering_key AS n FROM postbox_messages m WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT :limit) p),
       (SELECT COALESCE(CAST(unixepoch('subsec') * 1000000 AS INTEGER) - MIN(p.n), 0) FROM (SELECT COALESCE((SELECT f.failed_at FROM postbox_failures f WHERE f.subject = unhex('6d' || printf('%016x', m.id) || printf('%016x', m.created_at)) ORDER BY f.subject, f.id LIMIT 1), m.created_at) AS n FROM postbox_messages m WHERE m.spool = s.id AND m.state = 2 AND m.key_hash IS NOT NULL ORDER BY m.key_hash, m.id LIMIT :limit) p)
FROM (SELECT value AS id FROM json_each(:spools)) s

-- name: InboxLetters
-- Consumer, and the number of its dead letters that are not resolved, and of those of the last ten
-- minutes, among the latest ones of inboxes.
SELECT p.consumer, SUM(p.origin), SUM(CASE WHEN p.died_at > (SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)) - 600000000 THEN p.origin ELSE 0 END)
FROM (SELECT d.consumer, CASE WHEN d.resolved_at IS NULL THEN d.origin ELSE 0 END AS origin, d.died_at FROM postbox_dead_letters d WHERE d.spool IS NULL ORDER BY d.died_at DESC LIMIT :limit) p
GROUP BY p.consumer

-- The audit log -----------------------------------------------------------------------------------

-- name: AddToAct
-- Beside RecordAct of the engine, because for one statement that inserts or updates MariaDB
-- requires the right to update every column.
UPDATE postbox_audit SET affected = affected + :affected, note = :note WHERE operation = :operation

-- name: LockAct
-- Waits for a transaction that has changed the row, without the rights that SELECT … FOR UPDATE
-- needs on MySQL.
UPDATE postbox_audit SET affected = affected WHERE operation = :operation

-- name: NoteOfAct
SELECT note FROM postbox_audit WHERE operation = :operation

-- name: AuditRows
-- Walks the primary key backwards. The limit bounds the page. Rows that the filter leaves out are
-- still read. The sums keep databases from reading all rows of a span by the index on the time, and
-- sorting them.
SELECT id, acted_at, actor, action, target, subject, filter, affected, note
FROM postbox_audit
WHERE id < :before AND id >= :least AND acted_at + 0 >= :from AND acted_at + 0 < :until
  AND (:actor = '' OR actor = :actor)
  AND (:action = '' OR action = :action)
  AND (:target = '' OR target = :target)
ORDER BY id DESC
LIMIT :most

-- name: AuditSearchEnd
SELECT COUNT(*), COALESCE(MIN(p.id), 0) FROM (SELECT id FROM postbox_audit WHERE id < :before ORDER BY id DESC LIMIT :among) p
