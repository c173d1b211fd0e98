// Package crashpoints proves that Postbox survives a crash at every point: before and after each single statement, each
// call of the broker and each run of a handler, of each of its flows. Nothing is sampled.
//
// A flow runs once unharmed, which lists its points. Then it runs once for each point and each [fault] there, in a
// process that ends at that point. A new process does the rest, and the oracles look at what came out. Where the
// database has connections to lose, the same is done with a process that lives on and finds its connection gone.
//
// `make crashpoints` prints how many points there were, and from how many of them all was well again.
package crashpoints
