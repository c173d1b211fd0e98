-- +goose Up

-- How many bytes of payload and metadata the history has not kept of a message that was too large for it.
ALTER TABLE {history} ADD COLUMN omitted bigint NOT NULL DEFAULT 0;
