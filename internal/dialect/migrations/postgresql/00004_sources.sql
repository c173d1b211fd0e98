-- Tables written by watermill-sql from which messages are taken over: everything up to here has been.
CREATE TABLE {sources} (
	name           text PRIMARY KEY,
	transaction_id bigint NOT NULL,
	row_offset     bigint NOT NULL
);
