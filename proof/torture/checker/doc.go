// Package checker judges a torture run by what is left of it: the records that all processes wrote
// down, and the database as it was found afterwards. It knows what Postbox promises, and nothing of
// how Postbox keeps it: it imports no code of the product, and reads the product's tables with
// statements of its own.
//
// [ReadDatabase] reads the tables, [Check] applies the oracles, all of which stand in one list, and
// [Report] counts what was found and tells the whole story of the first message that something went
// wrong with.
//
// An oracle is silent where the evidence cannot tell. A process that is killed, or paused until its
// lease is over, may have run a handler whose outcome nobody ever wrote down, and clocks of
// different processes cannot be compared. Each oracle says what it allows for that.
//
// A [Failover] that is not lossless takes with it what the old database had confirmed last. The
// checker excuses what the new database verifiably never had and the old one had confirmed in the
// time before the failover, and nothing else: see failover.go.
package checker
