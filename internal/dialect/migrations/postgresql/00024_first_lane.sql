-- +goose Up

-- The number of lanes can be changed: the new lanes then get the numbers from first_lane on, which no lane had before. So the lane of a message
-- shows under which number of lanes it was written. A default that is a constant is stored once, so the table is not written anew.
ALTER TABLE {spools} ADD COLUMN first_lane integer NOT NULL DEFAULT 0;
