// Package postbox holds the types and functions that all parts of Postbox share, and creates its
// tables. Postbox is a transactional outbox and inbox for Watermill. The parts that you add to your
// program are packages of their own.
//
// A service that changes its database and publishes a message can crash between the two. A service
// that receives a message can crash before its work is done, or receive the message twice. Postbox
// closes both gaps with the SQL database that you already have:
//
//	business tx ──► outbox table ──► forwarder ──► Watermill broker ──► inbox ──► handler
//	  (one commit)                                                      (one commit with what
//	                                                                     the handler writes)
//	                                                        └──► queue ──► subscriber ──► handler
//	                                                        (store, ack, handle later)
//
// Describe your database once, and create the tables when the program starts:
//
//	database := postbox.Database{DB: db, Dialect: postbox.PostgreSQL}
//	err := postbox.Migrate(ctx, database)
//
// Then use the parts that you need. The examples on this page are complete and tested:
//
//   - To publish in the transaction that changes your data: forwarder.NewPublisher and
//     postbox.InTx. See the example "Produce".
//   - To send the messages of the outbox to a broker: forwarder.New. See "Relay".
//   - To handle each message once: the middleware of middleware.NewInbox, with a store of
//     inboxstore.New. See "ConsumeOnce".
//   - To store a message now and handle it later, one by one, in order, or many at a time:
//     middleware.Defer and queue.NewSubscriber or queue.NewBatch. See "ConsumeLater".
//
// Package router sets up each of these on a Watermill router in one call. Package admin lists and
// requeues dead letters, and pauses queues. Package postboxtest helps to test handlers without
// waiting.
//
// A handler finds its transaction with [TxFromContext]. It decides with [Permanent] and
// [RetryAfter] what happens to a message that failed. A message has its place in an order by the
// metadata [MetadataOrderingKey]. What is guaranteed, and what is not, is described in
// https://github.com/postbox-go/watermill-postbox/blob/main/docs/guarantees.md.
package postbox
