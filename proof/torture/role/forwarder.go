package role

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// forward drains the outbox to both brokers, and writes down how many messages came through the
// log. One of the processes at a time reads the log of the database, if it is written.
func (p *process) forward(ctx context.Context) error {
	to, err := insist(ctx, p.publishers)
	if err != nil {
		return nil // told to stop before it could start
	}
	defer func() { _ = to.Close() }()
	reader, err := pgtail.New(pgtail.Config{DSN: p.Database})
	if err != nil {
		return err
	}
	note := func(i *metrics.Instrument, value float64, _ ...string) {
		if i == instruments.LogTaken && value > 0 {
			p.history.Write(history.Record{Kind: history.Tailed, Number: int(value)})
		}
	}
	db := postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL, Metrics: instruments.RecorderFunc(note)}
	fwd, err := forwarder.New(db, noting{to, p.history}, forwarder.Config{
		Tuning: postbox.Tuning{ListenDSN: p.Database, Lease: Lease, PageSize: 200, ProbeMax: ProbeMax}, Tail: reader, BatchSize: 8,
		Classify: classify,
		Retry:    soon(ledger.OutboxAttempts),
	}, p.logger)
	if err != nil {
		return err
	}
	return fwd.Run(ctx)
}

// errNowhere is what becomes of messages to [ledger.Nowhere].
var errNowhere = errors.New("this topic leads nowhere")

func classify(err error) postbox.ErrorClass {
	if errors.Is(err, errNowhere) {
		return postbox.MessageFault
	}
	return cmp.Or(kafkabroker.Classify(err), amqpbroker.Classify(err))
}

// errAnswerLost is the answer of a broker that never came.
var errAnswerLost = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("the broker's answer is lost, on purpose")}

// noting writes down what is sent, and loses some answers of the broker.
type noting struct {
	message.Publisher

	history *history.Writer
}

// Publish implements message.Publisher.
func (n noting) Publish(topic string, messages ...*message.Message) error {
	if err := n.note(history.Sending, messages); err != nil {
		return err
	}
	if topic == ledger.Nowhere {
		return errNowhere
	}
	if err := n.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	if err := n.note(history.Sent, messages); err != nil {
		return err
	}
	if chance(300) {
		return errAnswerLost
	}
	return nil
}

func (n noting) note(kind history.Kind, messages []*message.Message) error {
	for _, msg := range messages {
		intent, err := readMessage(msg)
		if err != nil {
			return err
		}
		n.history.Write(record(kind, intent, ""))
	}
	return nil
}
