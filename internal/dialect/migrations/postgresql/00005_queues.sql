-- Keys of which nothing is handled until an operator says so.
CREATE TABLE {pauses} (
	spool        integer NOT NULL,
	key_hash     bigint NOT NULL,
	ordering_key bytea NOT NULL,
	paused_at    bigint NOT NULL,
	PRIMARY KEY (spool, key_hash)
);

-- Messages that were done, of spools that keep them. The id is that of the message.
CREATE TABLE {history} (
	id           bigint PRIMARY KEY,
	spool        integer NOT NULL,
	topic        text NOT NULL,
	message_id   bytea NOT NULL,
	ordering_key bytea,
	payload      bytea NOT NULL,
	metadata     bytea NOT NULL,
	created_at   bigint NOT NULL,
	done_at      bigint NOT NULL,
	attempts     integer NOT NULL
);

CREATE INDEX {prefix}history_done_at ON {history} (spool, done_at);
