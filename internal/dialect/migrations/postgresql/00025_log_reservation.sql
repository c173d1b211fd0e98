-- +goose Up

-- Which messages of the log may have been published without a row by a process that is gone: those that were committed before the place reserved. It counts only if
-- reserved_epoch is the epoch of the row: otherwise a process of an earlier version has read the log since then, and it may be any message.
ALTER TABLE {log_position} ADD COLUMN reserved bigint NOT NULL DEFAULT 0, ADD COLUMN reserved_epoch bigint NOT NULL DEFAULT 0;
