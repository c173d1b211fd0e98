// Package postbox has the vocabulary of Postbox, the transactional outbox and inbox for Watermill, and makes its tables. The parts that
// you add to your program are packages of their own.
//
// A service that changes its database and publishes a message can crash between the two. A service that receives a message can crash
// before its work is done, or receive the message twice. Postbox closes both gaps with the SQL database that you have:
//
//	business tx ──► outbox table ──► forwarder ──► any Watermill broker ──► inbox ──► handler
//	  (one commit)                                                          (one commit with what
//	                                                                         the handler writes)
//	                                                           └──► queue ──► subscriber ──► handler
//	                                                           (store, ack, handle later)
//
// Say once which database it is, and make the tables at the start of the program:
//
//	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL}
//	err := postbox.Migrate(ctx, database)
//
// Then take what you need. The examples of this page are whole and tested:
//
//   - To publish in the transaction that changes your data: forwarder.NewPublisher and forwarder.InTx. See the example "Produce".
//   - To send what was published to a broker: forwarder.New. See "Relay".
//   - To handle each message once: the middleware of middleware.NewInbox, with a store of inboxstore.New. See "ConsumeOnce".
//   - To store a message now and handle it later, one by one, in order, or many at a time: middleware.Defer and
//     queue.NewSubscriber or queue.NewBatch. See "ConsumeLater".
//
// Package router wires each of these to a Watermill router in one call, package admin lists and requeues dead letters and pauses queues, and
// package postboxtest helps to test handlers without waiting.
//
// A handler finds its transaction by [TxFromContext], says with [Permanent] and [RetryAfter] what shall happen to its message, and asks for order
// with the metadata [OrderingKey]. What is guaranteed, and what is not, stands in
// https://github.com/postbox-go/watermill-postbox/blob/main/docs/guarantees.md.
package postbox
