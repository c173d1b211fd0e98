// Package inboxstore keeps what an inbox must remember: which messages were handled, how often one failed, and
// the dead letters.
//
// A message is claimed by inserting a row for (consumer, topic, message id) as the first statement of the
// transaction in which its handler works. The claim, what the handler writes and the messages it emits commit
// together, so a message has its effect once however often it is delivered. A second delivery at the same
// instant waits, in the database, for the first one to end: then it is a duplicate, or takes its turn.
//
// It also keeps queues: messages that were stored and acked, to be handled later. Package queue works them off, one by one or many at a time.
//
// Most users need [New] and give the [Store] to middleware.NewInbox, or to the package router.
package inboxstore
