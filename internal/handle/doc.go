// Package handle makes the handle through which the engine executes its own statements. It is a [database/sql.DB] over
// the pool of the user: each connection is borrowed from that pool for one statement or one transaction, and goes back
// to it. So what must be true of every statement of the engine is in one place, and no caller can forget it:
//
//   - A statement ends soon after its context does, also with lib/pq, which would read from a silent network until the
//     operating system gives up.
//   - A connection that has shown that it cannot write does not go back to the pool. To the pool it is healthy, since it
//     answers; so it would be handed out again for ever, such as one to a server that was the primary.
//   - A transaction has the isolation level that it asks for, also through a driver that cannot set it.
//
// Statements of users, and the transactions that handlers get, run on the pool of the user itself. Their owners call
// [Watch] and [dialect.Discard].
//
// A database in one file has no network and no servers, and its only connection may be the database: there the handle is
// the pool itself.
package handle
