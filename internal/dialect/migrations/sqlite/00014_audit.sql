-- +goose Up

-- One row for each action of an operator, written in the transaction of its effect. An action on many things has one row, whose number
-- grows with each of its transactions, which find it by its operation.
CREATE TABLE {audit} (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	operation TEXT NOT NULL UNIQUE,
	acted_at  INTEGER NOT NULL,
	actor     TEXT NOT NULL,
	action    TEXT NOT NULL,
	target    TEXT NOT NULL,
	subject   TEXT NOT NULL,
	filter    TEXT NOT NULL,
	affected  INTEGER NOT NULL,
	note      TEXT NOT NULL
);

CREATE INDEX {prefix}audit_acted_at ON {audit} (acted_at);

-- Why the message died, as a number that the code gives; 0 is unknown, as for all older letters.
ALTER TABLE {dead_letters} ADD COLUMN cause INTEGER NOT NULL DEFAULT 0;
