package checker

// What ReadDatabase reads, on PostgreSQL, with the tables of Postbox under their default names.
// Times are microseconds since 1970, lists come in the order of their ids.
const (
	selectNow = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

	selectIntents = `
SELECT id, at, message_id, key, turn, topic, plan, emitter, parent FROM torture_intents ORDER BY id`

	selectEffects = `
SELECT id, at, consumer, message_id, key, turn, topic, process FROM torture_effects ORDER BY id`

	selectLeases = `
SELECT l.id, s.name, l.lane, l.token, l.holder, l.until, l.before, l.at
FROM torture_leases l JOIN postbox_spools s ON s.id = l.spool
ORDER BY l.id`

	selectPending = `
SELECT m.id, s.name, m.topic, m.message_id, COALESCE(m.ordering_key, ''), m.attempts, m.state, m.created_at, m.available_at
FROM postbox_messages m JOIN postbox_spools s ON s.id = m.spool
ORDER BY m.id`

	// A letter of an inbox names its consumer, and one of a spool only the spool.
	selectLetters = `
SELECT d.id, d.origin, COALESCE(s.name, ''), d.consumer, d.topic, d.message_id, COALESCE(d.ordering_key, ''),
       d.attempts, d.error, d.subject, d.created_at, d.died_at
FROM postbox_dead_letters d LEFT JOIN postbox_spools s ON s.id = d.spool
ORDER BY d.id`

	selectFailures = `
SELECT id, subject, attempt, failed_at, error, process FROM postbox_failures ORDER BY id`

	selectKept = `
SELECT h.id, s.name, h.message_id, h.created_at, h.done_at
FROM postbox_history h JOIN postbox_spools s ON s.id = h.spool
ORDER BY h.id`

	selectClaimKeys = `
SELECT claim_key FROM postbox_claims WHERE claimed_at > 1`

	// Those of the first microsecond of 1970 are none of the run's, but were put there to be
	// purged.
	selectClaims = `
SELECT COALESCE(MIN(claimed_at), 0), COALESCE(MAX(claimed_at), 0) FROM postbox_claims WHERE claimed_at > 1`
)
