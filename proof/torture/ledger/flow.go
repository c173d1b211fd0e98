// Package ledger is the business of a torture run: which messages go where, what each of them means
// to do, and the tables in which the truth about that stands, written in the same transactions as
// the messages themselves.
package ledger

// Topics, each of which the forwarders publish to one broker.
const (
	// Orders are written by producers and go to Kafka.
	Orders = "orders"
	// Payments are written by producers and go to RabbitMQ.
	Payments = "payments"
	// Receipts are emitted by the consumer of orders and go to RabbitMQ.
	Receipts = "receipts"
	// Statements are emitted by the consumer of payments and go to Kafka.
	Statements = "statements"
	// Nowhere is a topic whose messages the forwarders' publisher refuses, and that no flow has:
	// each of them becomes a dead letter of the outbox.
	Nowhere = "nowhere"
)

// OutboxAttempts is how often publishing a message may fail for a reason that is not an outage.
const OutboxAttempts = 4

// Broker is where a topic lives.
type Broker string

// The brokers.
const (
	Kafka    Broker = "kafka"
	RabbitMQ Broker = "rabbitmq"
)

// BrokerOf says where the forwarders publish a topic.
func BrokerOf(topic string) Broker {
	if topic == Orders || topic == Statements {
		return Kafka
	}
	return RabbitMQ
}

// Work is how a consumer does its work.
type Work string

// The ways to work.
const (
	// Inbox handles deliveries as they come: middleware.Inbox.
	Inbox Work = "inbox"
	// Transactional stores them in a queue and handles them in the transaction that ends the
	// message.
	Transactional Work = "transactional"
	// Claimed stores them in a queue without transactions, whose handler claims each message in one
	// of its own.
	Claimed Work = "claimed"
	// Batched stores them in a queue that is handled in transactional batches.
	Batched Work = "batched"
)

// Flow is one consumer of one topic. Each message that is committed to the topic has one effect in
// each flow of it, or is a dead letter.
type Flow struct {
	// Consumer names the flow. It is the consumer of the inbox or the name of the queue, and stands
	// in the effects.
	Consumer string
	Topic    string
	Work     Work
	// Ordered says that the effects of a key must come in the order of its turns. RabbitMQ puts
	// back in another order what was not acked, so nothing is promised behind it. Messages that
	// were requeued, or that were dead letters at any time, have no turn any more.
	Ordered bool
	// Attempts is how often a handler may fail, the surroundings aside, until the message is a dead
	// letter. A requeued message has as many again.
	Attempts int
	// Emits is the topic of the message that the handler emits, in its transaction, for each
	// message; "" for none.
	Emits string
}

// Queue returns the name of the queue in the database, "" for a flow without one.
func (f Flow) Queue() string {
	if f.Work == Inbox {
		return ""
	}
	return f.Consumer
}

// attempts allow the failures that a Flaky message plans, and are few, so that Poison is soon dead.
const attempts = 4

// Flows are all there are.
var Flows = []Flow{
	{Consumer: "accountant", Topic: Orders, Work: Inbox, Ordered: true, Attempts: attempts, Emits: Receipts},
	{Consumer: "auditor", Topic: Orders, Work: Transactional, Ordered: true, Attempts: attempts},
	{Consumer: "scorer", Topic: Orders, Work: Claimed, Ordered: true, Attempts: attempts},
	{Consumer: "reporter", Topic: Orders, Work: Batched, Ordered: true, Attempts: attempts},
	{Consumer: "teller", Topic: Payments, Work: Inbox, Attempts: attempts, Emits: Statements},
	{Consumer: "postman", Topic: Receipts, Work: Inbox, Attempts: attempts},
	{Consumer: "archivist", Topic: Statements, Work: Inbox, Ordered: true, Attempts: attempts},
}
