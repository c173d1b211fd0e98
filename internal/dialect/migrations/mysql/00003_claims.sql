-- What an inbox has handled. The key is 16 bytes for consumer and topic and then the message id, so the claims of
-- time-ordered ids lie side by side. Narrow on purpose: it is kept for the whole retention.
CREATE TABLE IF NOT EXISTS {claims} (
	claim_key  VARBINARY(255) NOT NULL PRIMARY KEY,
	claimed_at BIGINT NOT NULL
) ENGINE = InnoDB;
