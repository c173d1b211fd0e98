package receipts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ConfirmParams say who confirms messages, and where.
type ConfirmParams struct {
	// Outbox takes the receipts: a forwarder.Publisher, or another one with PublishesInTx.
	// Required.
	Outbox message.Publisher
	// ReceiptTopic is the topic of the receipts. Required.
	ReceiptTopic string
	// Consumer is the name of the handler. Required.
	Consumer string
	// SourceTopic is the topic under which the producer published the messages. Defaults to the
	// metadata [postbox.MetadataSourceTopic], which messages of a queue have.
	SourceTopic string
}

// Confirm publishes a receipt for each message, in the transaction that ctx carries. Handlers of
// batches call it with the context that they get; other handlers need only a setting, see the
// package comment. It publishes none for a message that is itself a receipt. Call it last: an error
// must fail the handler, or its effect commits without the receipts. An error that another try
// cannot mend is a [postbox.Permanent] error.
func Confirm(ctx context.Context, params ConfirmParams, messages ...*message.Message) error {
	if err := params.validate(); err != nil {
		return fmt.Errorf("confirm messages: %w", postbox.Permanent(err))
	}
	var confirmed []receipt.Receipt
	now := time.Now()
	for i, msg := range messages {
		if msg == nil {
			return fmt.Errorf("confirm messages: %w", postbox.Permanent(fmt.Errorf("message %d of %d is nil", i+1, len(messages))))
		}
		if receipt.Is(msg) {
			continue
		}
		topic := cmp.Or(params.SourceTopic, msg.Metadata.Get(postbox.MetadataSourceTopic))
		if topic == "" {
			return fmt.Errorf("confirm messages: %w", postbox.Permanent(errNoSource))
		}
		confirmed = append(confirmed, receipt.Receipt{Consumer: params.Consumer, Topic: topic, MessageID: msg.UUID, HandledAt: now})
	}
	return receipt.Publish(ctx, params.Outbox, params.ReceiptTopic, confirmed...)
}

var errNoSource = errors.New("a message does not say on which topic it came: set ConfirmParams.SourceTopic")

// validate returns all mistakes.
func (p ConfirmParams) validate() error {
	var problems []error
	if p.Outbox == nil {
		problems = append(problems, errors.New("Outbox: is nil"))
	} else if err := given.Outbox(p.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("Outbox: %w", err))
	}
	if err := spool.CheckTopic(p.ReceiptTopic); err != nil {
		problems = append(problems, fmt.Errorf("ReceiptTopic: %w", err))
	}
	if p.Consumer == "" {
		problems = append(problems, errors.New("Consumer: is empty"))
	}
	return errors.Join(problems...)
}
