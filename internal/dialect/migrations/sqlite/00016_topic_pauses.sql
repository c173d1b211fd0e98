-- +goose Up

-- Topics of which nothing is published until an operator says so.
CREATE TABLE {topic_pauses} (
	spool     INTEGER NOT NULL,
	topic     TEXT NOT NULL,
	paused_at INTEGER NOT NULL,
	PRIMARY KEY (spool, topic)
) WITHOUT ROWID;
