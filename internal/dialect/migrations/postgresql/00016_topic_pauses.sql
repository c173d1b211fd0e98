-- +goose Up

-- Topics of which nothing is published until an operator says so.
CREATE TABLE {topic_pauses} (
	spool     integer NOT NULL,
	topic     text NOT NULL,
	paused_at bigint NOT NULL,
	PRIMARY KEY (spool, topic)
);
