// Package inboxstore keeps the data that an inbox must remember: which messages were handled, how
// often a message failed, and the dead letters.
//
// A message is claimed by inserting a row for (consumer, topic, message id). That is the first
// statement of the transaction in which the handler works. The claim, the handler's writes and the
// messages it emits commit together, so a message has its effect once however often it is
// delivered. A second delivery at the same time waits in the database for the first one to end.
// Then it is a duplicate, or is handled itself if the first one failed.
//
// It also keeps queues: messages that were stored and acked, to be handled later. Package queue
// handles them, one by one or many at a time.
//
// Most users need [New] and give the [Store] to middleware.NewInbox, or to the package router.
package inboxstore
