-- +goose Up

-- What tells a spool from one of another database that has the same name and the same id. It is drawn by lot when the spool is registered.
ALTER TABLE {spools} ADD COLUMN identity VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';
UPDATE {spools} SET identity = UUID() WHERE identity = '';
