// Package crashpoints proves that Postbox survives a crash at every point: before and after each
// single statement, each call of the broker and each run of a handler, of each of its flows.
//
// A flow runs once unharmed, which lists its points. Then it runs once for each point and each
// [fault] there, in a process that ends at that point. A new process does the rest, and the oracles
// look at what came out. Where the database has connections to lose, the same is done with a
// process that lives on and finds its connection gone.
//
// `make crashpoints` goes through all points on all databases, and prints how many there were, and
// from how many of them all was well again. `make proof` goes through all of them on SQLite. On the
// servers, each flow meets each kind of call whose effect outlives the process there, once and
// after its effect, and one flow meets each other call, such as a read, a statement in a
// transaction or a renewal of leases.
package crashpoints
