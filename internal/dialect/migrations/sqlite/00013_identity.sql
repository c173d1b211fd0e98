-- +goose Up

-- What tells a spool from one of another database that has the same name and the same id. It is drawn by lot when the spool is registered.
ALTER TABLE {spools} ADD COLUMN identity TEXT NOT NULL DEFAULT '';
UPDATE {spools} SET identity = lower(hex(randomblob(16))) WHERE identity = '';
