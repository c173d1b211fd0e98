-- One row a failed attempt. The subject is a stored message or an inbox's claim, as the code encodes it.
CREATE TABLE {failures} (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	subject   bytea NOT NULL,
	attempt   integer NOT NULL,
	failed_at bigint NOT NULL,
	error     text NOT NULL,
	process   text NOT NULL
);

CREATE INDEX {prefix}failures_subject ON {failures} (subject, id);
CREATE INDEX {prefix}failures_failed_at ON {failures} (failed_at);

-- origin: 0 a message of a spool, 1 a message that an inbox could not handle.
CREATE TABLE {dead_letters} (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	origin       smallint NOT NULL,
	subject      bytea NOT NULL,
	spool        integer,
	consumer     text NOT NULL,
	topic        text NOT NULL,
	message_id   bytea NOT NULL,
	ordering_key bytea,
	key_hash     bigint,
	payload      bytea NOT NULL,
	metadata     bytea NOT NULL,
	created_at   bigint NOT NULL,
	died_at      bigint NOT NULL,
	attempts     integer NOT NULL,
	error        text NOT NULL,
	resolved_at  bigint,
	resolution   text
);

CREATE INDEX {prefix}dead_letters_died_at ON {dead_letters} (spool, died_at);

-- Cleanup: one process at a time does each chore, and the next one goes on where it stopped.
CREATE TABLE {chores} (
	name       text PRIMARY KEY,
	holder     text NOT NULL DEFAULT '',
	expires_at bigint NOT NULL DEFAULT 0,
	progress   bytea
);
