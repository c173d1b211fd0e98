-- What is due is read in the order of this index and needs no sorting, so a page costs the same however much is due.
DROP INDEX IF EXISTS {waiting}_due;
CREATE INDEX {prefix}waiting_due ON {waiting} (spool, available_at, id);

-- Only what waits is settled here. A message that somebody made ready by hand would be handled again and again.
WITH m AS (DELETE FROM {waiting} WHERE state = 0 RETURNING *)
INSERT INTO {messages} SELECT * FROM m;

ALTER TABLE {waiting} DROP CONSTRAINT IF EXISTS {prefix}waiting_state_check;
ALTER TABLE {waiting} ADD CONSTRAINT {prefix}waiting_state_check CHECK (state > 0);

-- The messages that wait already move some at a time, so that whoever writes messages waits for none of it.
-- postbox: commit, then repeat
WITH m AS (
	DELETE FROM ONLY {messages} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM ONLY {messages} WHERE state > 0 LIMIT {portion} FOR UPDATE))
	RETURNING *)
INSERT INTO {waiting} SELECT * FROM m;

-- Whoever writes messages waits for this lock, and for nothing else in it.
-- postbox: commit
DROP INDEX IF EXISTS {messages}_due;
DROP INDEX IF EXISTS {messages}_retrying;
