-- +goose Up

-- The number of lanes can be changed: the new lanes then get the numbers from first_lane on, which no lane had before. So the lane of a message
-- shows under which number of lanes it was written.
--
-- A migration that is cut short runs again from its start, and MySQL, unlike MariaDB, cannot add a column only if it is not there yet.
SET @postbox_add_first_lane = (SELECT CASE WHEN COUNT(*) = 0
    THEN 'ALTER TABLE {spools} ADD COLUMN first_lane INT NOT NULL DEFAULT 0'
    ELSE 'DO 0' END
  FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{spools}' AND COLUMN_NAME = 'first_lane');
PREPARE postbox_add_first_lane FROM @postbox_add_first_lane;
EXECUTE postbox_add_first_lane;
DEALLOCATE PREPARE postbox_add_first_lane;
