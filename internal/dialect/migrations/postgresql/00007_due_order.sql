-- +goose Up

-- What is due is read in the order of this index and needs no sorting, so a page costs the same however much is due.
DROP INDEX {waiting}_due;
CREATE INDEX {prefix}waiting_due ON {waiting} (spool, available_at, id);

-- Only what waits is settled here. A message that somebody made ready by hand would be handled again and again.
WITH m AS (DELETE FROM {waiting} WHERE state = 0 RETURNING *)
INSERT INTO {messages} SELECT * FROM m;

ALTER TABLE {waiting} ADD CHECK (state > 0);
