-- +goose Up

-- One row for each action of an operator, written in the transaction of its effect. An action on many things has one row, whose number
-- grows with each of its transactions, which find it by its operation.
CREATE TABLE {audit} (
	id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	operation text NOT NULL UNIQUE,
	acted_at  bigint NOT NULL,
	actor     text NOT NULL,
	action    text NOT NULL,
	target    text NOT NULL,
	subject   text NOT NULL,
	filter    text NOT NULL,
	affected  bigint NOT NULL,
	note      text NOT NULL
);

CREATE INDEX {prefix}audit_acted_at ON {audit} (acted_at);

-- Why the message died, as a number that the code gives; 0 is unknown, as for all older letters. A default that is a constant is stored once, so the
-- table is not written anew.
ALTER TABLE {dead_letters} ADD COLUMN cause smallint NOT NULL DEFAULT 0;
