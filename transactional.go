package postbox

import "github.com/ThreeDotsLabs/watermill/message"

// TransactionalPublisher is a publisher that writes each message in the transaction which the
// message's context carries, so that no message is sent before that transaction commits. An inbox
// or a queue needs one to publish the messages that a handler returns. A forwarder.Publisher is
// one, also in forwarder.KeepOpen and with the decorators of forwarder.Decorate. Any other
// publisher is refused, because it would send messages of a handler whose transaction is rolled
// back afterwards.
//
// Implement it only if that is true, or if a publisher stands in for an outbox in a test.
type TransactionalPublisher interface {
	message.Publisher
	// PublishesInTx says whether Publish writes in the transaction that [TxFromContext] finds in
	// the message's context.
	PublishesInTx() bool
}
