-- +goose Up

-- Topics of which nothing is published until an operator says so.
CREATE TABLE IF NOT EXISTS {topic_pauses} (
	spool     INT NOT NULL,
	topic     VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	paused_at BIGINT NOT NULL,
	PRIMARY KEY (spool, topic)
) ENGINE = InnoDB;
