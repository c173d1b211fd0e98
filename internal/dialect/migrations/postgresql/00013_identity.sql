-- +goose Up

-- What tells these tables from those of another database: drawn by lot. A copy of the database has it too.
CREATE TABLE {identity} (
	id       smallint NOT NULL PRIMARY KEY CHECK (id = 1),
	identity text NOT NULL
);
INSERT INTO {identity} VALUES (1, gen_random_uuid()::text);
