-- An id names no message by itself: after a failover, or with a sequence that was not set, the database gives out ids again. A
-- message whose id the history has, from another time, could not be moved there.
--
-- This builds an index and keeps all others from the history meanwhile, so drainers that keep one wait for it.
ALTER TABLE {history} DROP CONSTRAINT {prefix}history_pkey, ADD PRIMARY KEY (id, created_at);
