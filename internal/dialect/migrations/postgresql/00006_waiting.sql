-- +goose Up

-- Messages that wait, for their time or for another attempt, stand in a table of their own. It inherits from that of the
-- others, so whoever reads, changes or deletes messages there meets these too. What is ready is spared their indexes: each
-- INSERT opens and prepares every index of its table, also a partial one to which the row does not belong.
CREATE TABLE {waiting} (
	id bigint NOT NULL DEFAULT nextval('{messages}_id_seq'),
	PRIMARY KEY (spool, state, lane, id)
) INHERITS ({messages})
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Producers do not wait for this, which may take seconds. The indexes that are of no use any more are dropped later, in a migration of its own.
WITH m AS (DELETE FROM ONLY {messages} WHERE state > 0 RETURNING *)
INSERT INTO {waiting} SELECT * FROM m;

CREATE INDEX {prefix}waiting_due ON {waiting} (spool, available_at);
CREATE INDEX {prefix}waiting_retrying ON {waiting} (spool, key_hash, id) WHERE state = 2;
