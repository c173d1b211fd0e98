package role

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// forward drains the outboxes to both brokers. One of the processes at a time reads the log of the database for each of them, if it is written.
func (p *process) forward(ctx context.Context) error {
	to, err := insist(ctx, p.publishers)
	if err != nil {
		return nil // told to stop before it could start
	}
	defer func() { _ = to.Close() }()
	forwarding, ctx := errgroup.WithContext(ctx)
	forwarding.Go(func() error {
		follower, err := pgtail.New(pgtail.Config{DSN: p.Database})
		if err != nil {
			return err
		}
		return p.drain(ctx, to, spool.DefaultOutbox, follower, history.Tailed)
	})
	if p.InLog {
		forwarding.Go(func() error { return p.forwardLog(ctx, to) })
	}
	return forwarding.Wait()
}

// SlotLost begins the names of the marks of processes that refuse to read the log, since messages may be missing.
const SlotLost = "slot lost "

// forwardLog drains the outbox whose messages are in the log alone. After a loss of the slot it tries again and again, as a service does that is
// started again, until an operator has accepted the loss.
func (p *process) forwardLog(ctx context.Context, to message.Publisher) error {
	for {
		reader, err := pgtail.NewOutbox(pgtail.OutboxConfig{DSN: p.Database})
		if err != nil {
			return err
		}
		err = p.drain(ctx, to, ledger.LogOutbox, reader, history.Logged)
		if !errors.Is(err, pgtail.ErrSlotLost) {
			return err
		}
		p.history.Write(history.Record{Kind: history.SlotLost, Detail: err.Error()})
		if _, err := marks(p.Marks).leave(SlotLost + rand.Text()); err != nil {
			return err
		}
		if !wait(ctx, time.Second) {
			return nil
		}
	}
}

// drain runs a forwarder, and writes down how many messages came through the log.
func (p *process) drain(ctx context.Context, to message.Publisher, outbox string, reader forwarder.Tail, taken history.Kind) error {
	note := func(i *metrics.Instrument, value float64, _ ...string) {
		if i == metrics.LogTaken && value > 0 {
			p.history.Write(history.Record{Kind: taken, Number: int(value)})
		}
	}
	db := postbox.Database{DB: p.db, Dialect: postbox.PostgreSQL, Metrics: metrics.RecorderFunc(note)}
	fwd, err := forwarder.New(db, noting{to, p.history}, forwarder.Config{
		Outbox: outbox, ListenDSN: p.Database, Tail: reader, Lease: Lease, BatchSize: 8, PageSize: 200,
		Classify: postbox.Classifiers(classifyNowhere, kafkabroker.Classify, amqpbroker.Classify),
		Retry:    soon(ledger.OutboxAttempts), ProbeMax: ProbeMax,
	}, p.logger)
	if err != nil {
		return err
	}
	return fwd.Run(ctx)
}

// errNowhere is what becomes of messages to [ledger.Nowhere].
var errNowhere = errors.New("this topic leads nowhere")

func classifyNowhere(err error) postbox.ErrorClass {
	if errors.Is(err, errNowhere) {
		return postbox.MessageFault
	}
	return postbox.Unclassified
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
