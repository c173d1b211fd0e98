// Package storetest is the contract of an inbox store as a test suite. If you write a store of your
// own, in another database or in memory, call [Run] from a test. A store that passes can be used
// with middleware.Inbox, middleware.Defer and Watermill's router like the one of package
// inboxstore.
//
// Each case states the rule that it tests. G numbers are the guarantees of Postbox: G2 nothing is
// lost, G3 order within an ordering key, G4 effect once, G5 stored before acked, G12 clean stop. F
// numbers are faults that broke other systems of this kind: F1 a subscription closes with messages
// not acked, F2 a handler fails and its message comes again, F3 distinct messages are taken for
// duplicates, F6 copies of one message arrive at the same time, F11 a message fails again and again
// at the head of its key, F14 attempts multiply with the number of processes, F21 the same id names
// messages of two consumers or topics, F22 two processes move a message to the dead letters.
//
// [Features] lists the features that a store may lack. Cases that need a missing feature are
// skipped. The suite does not kill processes, cut connections or fill disks: these tests depend on
// the store, and its author should write them too.
package storetest
