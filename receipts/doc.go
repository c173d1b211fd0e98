// Package receipts lets a producer see which consumers have handled which of its messages.
//
// On the consumer's side, an inbox publishes a receipt of each message that it has handled: set
// ReceiptTopic in middleware.InboxConfig, or in middleware.ProcessConfig for a queue. The receipt
// goes through the outbox, in the transaction of the effect: there is a receipt if and only if the
// effect has committed. [Confirm] does the same for handlers without these middlewares, such as
// those of batches.
//
// On the producer's side, a [Receiver] takes the receipts from their topic and keeps them for a
// while. The producer can also say which consumers have to handle a topic, and within which time:
// set Receipts in forwarder.PublisherConfig. What does not come in time is counted, and reported by
// [Config.OnMissing]. [AddReceiver] adds a receiver with both of its parts to a router.
//
// The method Receipts of admin.Admin, and the commands "postbox receipts",
// answer which consumers have had a message, and which receipts are missing.
//
// All of it is off unless it is configured, and costs nothing then. See docs/receipts.md.
package receipts
