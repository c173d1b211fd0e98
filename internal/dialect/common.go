package dialect

import (
	"cmp"
	"strings"
)

// common returns the statements that all databases share. {now} stands for the database's clock in
// microseconds. {insert ignore} … {or ignore} stands for its way to skip existing rows. Comments
// name the index of a statement if it is not the primary key. Each statement locks only the rows
// that it changes.
func common(kind Kind, names Names) Statements {
	s := Statements{
		Kind:  kind,
		Names: names,

		Deployment: `
SELECT COALESCE((SELECT name FROM {deployment} WHERE id = 1), '')`,

		NameDeployment: `
{insert ignore} INTO {deployment} (id, name) VALUES (1, ?) {or ignore}`,

		Identity: `
SELECT identity FROM {identity} WHERE id = 1`,

		registerSpool: `
{insert ignore} INTO {spools} (name) VALUES (?) {or ignore}`,

		FindSpool: `
SELECT id FROM {spools} WHERE name = ?`,

		TryWrite: `
UPDATE {spools} SET version = version WHERE 1 = 0`,

		leave: `
DELETE FROM {members} WHERE spool = ? AND holder = ?`,

		expireMembers: `
DELETE FROM {members} WHERE spool = ? AND expires_at <= {now}`,

		// Also renews a lease that is over, as long as no other process has deleted the row.
		renew: `
UPDATE {members} SET in_flight = ?, expires_at = {now} + ?, sharing = ? WHERE spool = ? AND holder = ?`,

		// Its process may still handle a message of such a lane, and crash.
		releaseAll: statement{text: `
UPDATE {lanes} SET holder = NULL, suspect = 1 WHERE spool = :spool AND holder = :holder`},

		held: `
SELECT lane, token, suspect FROM {lanes} WHERE spool = ? AND holder = ? ORDER BY lane`,

		// The lanes that are suspect and in which something stands behind a retry, of any key.
		blockedLanes: statement{text: `
SELECT l.lane FROM {lanes} l
WHERE l.spool = :spool AND l.holder = :holder AND l.suspect = 1 AND EXISTS (
	SELECT 1 FROM {messages} r WHERE r.spool = l.spool AND r.state = 2 AND r.lane = l.lane AND r.key_hash IS NOT NULL AND EXISTS (
		SELECT 1 FROM {messages} m WHERE m.spool = l.spool AND m.state IN (0, 1, 2) AND m.lane = l.lane AND m.id > r.id))`},

		clearSuspect: `
UPDATE {lanes} SET suspect = 0 WHERE spool = ? AND lane = ? AND token = ?`,

		limits: statement{text: limits}, addSlots: statement{text: addSlots}, changeSlots: statement{text: changeSlots},

		loadPayload: `
SELECT payload, metadata FROM {messages} WHERE spool = ? AND state = {state ?} AND lane = ? AND id = ? AND created_at = ?`,

		insertFailure: `
INSERT INTO {failures} (subject, attempt, failed_at, error, process) VALUES (?, ?, {now}, ?, ?)`,

		// A requeue leaves an entry with attempt 0, so the last entry gives the number of attempts
		// since then.
		LastAttempt: `
SELECT attempt FROM {failures} WHERE subject = ? ORDER BY id DESC LIMIT 1`,

		insertDeadLetter: statement{text: `
INSERT INTO {dead_letters} (origin, subject, spool, consumer, topic, message_id, source_topic, carried_id, ordering_key, key_hash,
                            payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (1, :subject, :spool, :consumer, :topic, :message_id, :source, :carried_id, :key, :key_hash,
        :payload, :metadata, {now}, {now}, :attempts, :error, :cause)`},

		buryRow: statement{text: `
INSERT INTO {dead_letters} (origin, subject, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, error, cause)
VALUES (0, :subject, :spool, '', :topic, :message_id, :payload, :metadata, {now}, {now}, 0, :error, :cause)`},

		// A second claim of the same key waits for the transaction of the first and then changes no
		// row.
		Claim: `
{insert ignore} INTO {claims} (claim_key, claimed_at) VALUES (?, {now}) {or ignore}`,

		// Uses the primary key.
		FindClaim: `
SELECT 1 FROM {claims} WHERE claim_key = ?`,

		// A second claim waits for the transaction of the first.
		LockClaim: `
INSERT INTO {claims} (claim_key, claimed_at) VALUES (?, {now})
{on conflict (claim_key)} claimed_at = 0`,

		RemoveClaim: `
DELETE FROM {claims} WHERE claim_key = ?`,

		// Returns one row for any page size: the end of the page, its number of keys, and how many
		// of them are old.
		claimsPage: `
WITH p AS (SELECT claim_key, claimed_at FROM {claims} WHERE claim_key > ? ORDER BY claim_key LIMIT ?)
SELECT (SELECT claim_key FROM p ORDER BY claim_key DESC LIMIT 1),
       COUNT(*),
       COALESCE(SUM(CASE WHEN claimed_at < {now} - ? THEN 1 ELSE 0 END), 0)
FROM p`,

		// Bounded by the two keys that ClaimsPage returned.
		purgeClaims: `
DELETE FROM {claims} WHERE claim_key > ? AND claim_key <= ? AND claimed_at < {now} - ?`,

		AddChore: `
{insert ignore} INTO {chores} (name) VALUES (?) {or ignore}`,

		takeChore: statement{text: `
UPDATE {chores} SET holder = :holder, expires_at = CASE WHEN {int :ttl} > 0 THEN {now} + :ttl ELSE 0 END
WHERE name = :name AND (holder = :holder OR expires_at <= {now})`},

		ChoreCursor: `
SELECT progress FROM {chores} WHERE name = ?`,

		saveChore: `
UPDATE {chores} SET progress = ? WHERE name = ? AND holder = ?`,

		VersionTable: names.Table("version"),
	}
	s.purges()
	s.operate()
	s.audit()
	s.receipts()
	s.count()
	return s
}

// fetchColumns are the columns of a fetched message. A payload above a size is left out.
const fetchColumns = `m.state, m.id, m.lane, m.key_hash, m.attempts, m.starts, m.topic, m.message_id, m.ordering_key, m.created_at,
	COALESCE({length}(m.payload), 0) + {length}(m.metadata) AS size,
	CASE WHEN COALESCE({length}(m.payload), 0) + {length}(m.metadata) <= {int :inline} THEN m.metadata END AS metadata,
	CASE WHEN COALESCE({length}(m.payload), 0) + {length}(m.metadata) <= {int :inline} THEN m.payload END AS payload`

// Unblocked is true for a message without an earlier retrying message of its key. Keys with the
// same hash can be made, so their texts are compared too, behind the index. It uses the index of
// retrying messages by key, which is empty while nothing fails; {retrying} is the table with that
// index.
const Unblocked = `(m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM {retrying} b {by key} WHERE b.spool = m.spool AND b.state = 2 AND b.key_hash = m.key_hash AND b.ordering_key = m.ordering_key AND b.id < m.id))`

// unpaused is true for a message whose key is not paused by an operator.
const unpaused = `(m.key_hash IS NULL OR NOT EXISTS (
	SELECT 1 FROM {pauses} z WHERE z.spool = m.spool AND z.key_hash = m.key_hash AND z.ordering_key = m.ordering_key))`

// unheld is true for a message whose key is not in a list of those that a limit holds up. Here the
// hash is enough: a key with the same one is read later.
const unheld = `(m.key_hash IS NULL OR m.key_hash NOT IN ({numbers :held}))`

// turn returns the conditions of a fetch on a message besides its lane and its topic, for a
// [FetchParams.variant]. unblocked is how a database knows that a message is not behind another.
func turn(variant int, unblocked string) string {
	var conditions []string
	for bit, condition := range []string{unblocked, unpaused, unheld} {
		if (variant>>bit&1 == 1) != (bit == 0) { // the first bit says that messages are not in order
			conditions = append(conditions, condition)
		}
	}
	return cmp.Or(strings.Join(conditions, "\n  AND "), "TRUE")
}

const variants = 8

// anyTurn returns the same conditions with arguments instead of variants, for what is not executed
// often.
func anyTurn(unblocked string) string {
	return `({unseen flag :unordered} OR ` + unblocked + `)
	  AND (NOT {unseen flag :paused} OR ` + unpaused + `)
	  AND ` + unheld
}

// spoolVersion, freeLanes and liveMembers are columns of the meta row of a fetch.
//
// canBeTaken is true for a lane that belongs to no member. A member whose lease is over is deleted
// first, in a statement before.
const (
	canBeTaken   = `(holder IS NULL OR holder NOT IN (SELECT w.holder FROM {members} w WHERE w.spool = :spool))`
	spoolVersion = `COALESCE((SELECT v.version FROM {spools} v WHERE v.id = :spool), -1)`
	freeLanes    = `(SELECT COUNT(*) FROM {lanes} l WHERE l.spool = :spool AND (l.holder IS NULL OR l.holder NOT IN (
	SELECT w.holder FROM {members} w WHERE w.spool = :spool AND w.expires_at > {now})))`
	liveMembers = `(SELECT COUNT(*) FROM {members} w WHERE w.spool = :spool AND w.expires_at > {now} AND w.sharing = 1)`
)
