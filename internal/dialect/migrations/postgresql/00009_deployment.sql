-- Whose tables these are, such as those of production: a copy of the database has the name with it. At most one row.
CREATE TABLE {deployment} (
	id   smallint PRIMARY KEY CHECK (id = 1),
	name text NOT NULL
);
