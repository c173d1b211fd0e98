package postbox

import "github.com/ThreeDotsLabs/watermill/message"

// TransactionalPublisher is what an inbox or a queue needs to publish what a handler returns: a publisher that writes each message in the
// transaction which the message's context carries, so that nothing is sent before that commits. A forwarder.Publisher is one, also in
// forwarder.KeepOpen and with the decorators of forwarder.Decorate. Any other publisher would send messages of a handler whose transaction is
// rolled back afterwards, so it is refused.
//
// Implement it only where that is true, or where a publisher stands in for an outbox in a test.
type TransactionalPublisher interface {
	message.Publisher
	// PublishesInTx says whether Publish writes in the transaction that [TxFromContext] finds in the message's context.
	PublishesInTx() bool
}

// PublishesInTx says whether the publisher is a [TransactionalPublisher] that does what that one says.
func PublishesInTx(publisher message.Publisher) bool {
	transactional, ok := publisher.(TransactionalPublisher)
	return ok && transactional.PublishesInTx()
}
