-- +goose Up

-- How many bytes of payload and metadata the history has not kept of a message that was too large for it.
--
-- A migration that is cut short runs again from its start, and MySQL, unlike MariaDB, cannot add a column only if it is not there yet.
SET @postbox_add_omitted = (SELECT CASE WHEN COUNT(*) = 0
    THEN 'ALTER TABLE {history} ADD COLUMN omitted BIGINT NOT NULL DEFAULT 0'
    ELSE 'DO 0' END
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{history}' AND COLUMN_NAME = 'omitted');
PREPARE postbox_add_omitted FROM @postbox_add_omitted;
EXECUTE postbox_add_omitted;
DEALLOCATE PREPARE postbox_add_omitted;
