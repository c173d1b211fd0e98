-- An id names no message by itself: after a failover, or with a counter that was set back, the database gives out ids again. A
-- message whose id the history has, from another time, could not be moved there.
--
-- This writes the table anew, beside those who use it.
ALTER TABLE {history} DROP PRIMARY KEY, ADD PRIMARY KEY (id, created_at);
