-- +goose Up

-- Messages that wait are in a table of their own, so that of the others needs no indexes for them. All who use that table wait for this lock, so there
-- is nothing else in this migration.
DROP INDEX IF EXISTS {messages}_due;
DROP INDEX IF EXISTS {messages}_retrying;
