-- Tables written by watermill-sql from which messages are taken over: everything up to here has been.
CREATE TABLE {sources} (
	name           TEXT PRIMARY KEY,
	transaction_id INTEGER NOT NULL,
	row_offset     INTEGER NOT NULL
) WITHOUT ROWID;
