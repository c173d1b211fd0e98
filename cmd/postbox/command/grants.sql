-- The rights of each role, as docs/security.md has them.

-- producer
GRANT SELECT (id, name) ON postbox_spools TO :role;
GRANT INSERT ON postbox_messages TO :role;
GRANT INSERT ON postbox_waiting TO :role;
GRANT SELECT ON postbox_writers TO :role;
GRANT USAGE ON SEQUENCE postbox_messages_id_seq TO :role;
GRANT INSERT ON postbox_receipts TO :role;

-- unique-producer
GRANT SELECT, INSERT, UPDATE ON postbox_unique_keys TO :role;
GRANT USAGE ON SEQUENCE postbox_messages_id_seq TO :role;
GRANT SELECT, DELETE ON postbox_messages TO :role;

-- forwarder
GRANT SELECT ON postbox_deployment TO :role;
GRANT SELECT, INSERT (name), UPDATE (history, version, batches) ON postbox_spools TO :role;
GRANT SELECT, INSERT, UPDATE ON postbox_lanes TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON postbox_members TO :role;
GRANT SELECT, INSERT, UPDATE ON postbox_limits TO :role;
GRANT SELECT, UPDATE, DELETE ON postbox_messages TO :role;
GRANT SELECT, INSERT, DELETE ON postbox_waiting TO :role;
GRANT SELECT, UPDATE ON postbox_writers TO :role;
GRANT SELECT ON SEQUENCE postbox_messages_id_seq TO :role;
GRANT SELECT (id, spool, done_at), INSERT, DELETE ON postbox_history TO :role;
GRANT SELECT (id, failed_at), INSERT, DELETE ON postbox_failures TO :role;
GRANT SELECT (id, spool, died_at, origin, consumer, resolved_at), INSERT, DELETE ON postbox_dead_letters TO :role;
GRANT SELECT, INSERT, UPDATE ON postbox_chores TO :role;
GRANT SELECT ON postbox_pauses TO :role;
GRANT SELECT ON postbox_topic_pauses TO :role;
GRANT SELECT, DELETE ON postbox_unique_keys TO :role;
GRANT EXECUTE ON FUNCTION postbox_remove, postbox_due, postbox_stuck TO :role;

-- consumer
GRANT SELECT (id, name, settings, history), INSERT (name) ON postbox_spools TO :role;
GRANT INSERT, SELECT (id, spool, state, lane, created_at, available_at, attempts) ON postbox_messages TO :role;
GRANT SELECT (spool, expires_at) ON postbox_members TO :role;
GRANT INSERT, SELECT (id, spool, state, lane, available_at, attempts) ON postbox_waiting TO :role;
GRANT SELECT ON postbox_writers TO :role;
GRANT USAGE ON SEQUENCE postbox_messages_id_seq TO :role;
GRANT SELECT, INSERT, UPDATE, DELETE ON postbox_claims TO :role;
GRANT SELECT (id, subject, attempt, failed_at), INSERT, DELETE ON postbox_failures TO :role;
GRANT SELECT (id, spool, died_at, origin, consumer, resolved_at), INSERT, DELETE ON postbox_dead_letters TO :role;
GRANT SELECT (id, spool, done_at), DELETE ON postbox_history TO :role;
GRANT SELECT, INSERT, UPDATE ON postbox_chores TO :role;

-- receiver
GRANT SELECT, INSERT, UPDATE (state, handled_at, received_at), DELETE ON postbox_receipts TO :role;
GRANT SELECT, INSERT, UPDATE ON postbox_chores TO :role;

-- history
GRANT UPDATE (history) ON postbox_spools TO :role;
GRANT INSERT ON postbox_history TO :role;

-- operator
GRANT SELECT, UPDATE (version, paused_at, paused_by, pause_reason, pause_ends_at, settings) ON postbox_spools TO :role;
GRANT SELECT ON postbox_members TO :role;
GRANT SELECT ON postbox_lanes TO :role;
GRANT SELECT, INSERT, UPDATE (attempts, starts, available_at), DELETE ON postbox_messages TO :role;
GRANT SELECT ON postbox_waiting TO :role;
GRANT SELECT ON postbox_writers TO :role;
GRANT SELECT ON postbox_history TO :role;
GRANT SELECT, INSERT, UPDATE (subject) ON postbox_failures TO :role;
GRANT SELECT, INSERT, UPDATE (resolved_at, resolution), DELETE ON postbox_dead_letters TO :role;
GRANT SELECT (claim_key), DELETE ON postbox_claims TO :role;
GRANT SELECT, INSERT, DELETE ON postbox_pauses TO :role;
GRANT SELECT, INSERT, UPDATE (affected, note) ON postbox_audit TO :role;
GRANT SELECT ON postbox_receipts TO :role;
GRANT SELECT ON postbox_unique_keys TO :role;
GRANT SELECT, INSERT, DELETE ON postbox_topic_pauses TO :role;
GRANT SELECT ON postbox_minutes TO :role;
GRANT SELECT (name, progress) ON postbox_chores TO :role;
