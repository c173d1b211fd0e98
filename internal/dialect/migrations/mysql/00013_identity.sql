-- +goose Up

-- What tells a spool from one of another database that has the same name and the same id. It is drawn by lot when the spool is registered.
--
-- A migration that is cut short runs again from its start, and MySQL, unlike MariaDB, cannot add a column only if it is not there yet.
SET @postbox_add_identity = (SELECT CASE WHEN COUNT(*) = 0
    THEN 'ALTER TABLE {spools} ADD COLUMN identity VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '''''
    ELSE 'DO 0' END
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{spools}' AND COLUMN_NAME = 'identity');
PREPARE postbox_add_identity FROM @postbox_add_identity;
EXECUTE postbox_add_identity;
DEALLOCATE PREPARE postbox_add_identity;
UPDATE {spools} SET identity = UUID() WHERE identity = '';
