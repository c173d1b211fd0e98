package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Receipt says that a consumer has handled a message.
type Receipt struct {
	Consumer  string
	Topic     string // of the message
	MessageID string
	HandledAt time.Time
}

// Is reports whether a message is a receipt. There are no receipts of receipts: two services that
// confirm the messages of each other would never stop.
func Is(msg *message.Message) bool { return msg.Metadata.Get(Metadata) != "" }

// Metadata is the key of the metadata that marks a message as a receipt.
const Metadata = "postbox_receipt"

// version is the value of the metadata that marks a receipt. A later format would have another one.
const version = "1"

// payload is the JSON of a receipt.
type payload struct {
	Consumer  string    `json:"consumer"`
	Topic     string    `json:"topic"`
	MessageID string    `json:"message_id,omitempty"`
	IDBase64  []byte    `json:"message_id_base64,omitempty"` // instead, if the id is not UTF-8
	HandledAt time.Time `json:"handled_at"`
}

// Publish publishes receipts to a topic through an outbox, in the transaction of the context.
func Publish(ctx context.Context, outbox message.Publisher, topic string, receipts ...Receipt) error {
	messages := make([]*message.Message, len(receipts))
	for i, r := range receipts {
		msg, err := r.message()
		if err != nil {
			return err
		}
		msg.SetContext(ctx)
		messages[i] = msg
	}
	if len(messages) == 0 {
		return nil
	}
	if err := outbox.Publish(topic, messages...); err != nil {
		return fmt.Errorf("publish a receipt: %w", err)
	}
	return nil
}

// message returns the receipt as a message. Names are made fit for the columns of a database. An
// error is permanent.
func (r Receipt) message() (*message.Message, error) {
	r.Consumer, r.Topic = spool.NameText(r.Consumer), spool.NameText(r.Topic)
	if err := r.validate(); err != nil {
		return nil, postbox.Permanent(fmt.Errorf("make a receipt: %w", err))
	}
	content := payload{Consumer: r.Consumer, Topic: r.Topic, HandledAt: r.HandledAt.UTC()}
	if utf8.ValidString(r.MessageID) {
		content.MessageID = r.MessageID
	} else {
		content.IDBase64 = []byte(r.MessageID)
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode a receipt: %w", err)
	}
	msg := message.NewMessage(postbox.NewMessageID(), text)
	msg.Metadata.Set(Metadata, version)
	return msg, nil
}

// Parse reads a receipt. An error says why the message is none, without parts of it: it is logged.
func Parse(msg *message.Message) (Receipt, error) {
	if msg.Metadata.Get(Metadata) != version {
		return Receipt{}, fmt.Errorf("the metadata %s is not %q", Metadata, version)
	}
	var content payload
	if err := json.Unmarshal(msg.Payload, &content); err != nil {
		return Receipt{}, errors.New("the payload is not that of a receipt") // err has parts of it
	}
	r := Receipt{Consumer: content.Consumer, Topic: content.Topic, MessageID: content.MessageID, HandledAt: content.HandledAt}
	if len(content.IDBase64) > 0 {
		r.MessageID = string(content.IDBase64)
	}
	return r, r.validate()
}

// validate returns an error if the receipt does not say who has handled what, or if some database
// cannot store it.
func (r Receipt) validate() error {
	var problems []error
	if CheckConsumer(r.Consumer) != nil {
		problems = append(problems, errors.New("the consumer is not a name of 1 to 255 bytes"))
	}
	if r.Topic == "" || r.Topic != spool.NameText(r.Topic) {
		problems = append(problems, errors.New("the topic is not a name of 1 to 255 bytes"))
	}
	if r.MessageID == "" {
		problems = append(problems, errors.New("the message id is missing"))
	}
	if r.HandledAt.IsZero() {
		problems = append(problems, errors.New("the time is missing"))
	}
	return errors.Join(problems...)
}

// CheckConsumer returns an error if some database cannot store the name of a consumer.
func CheckConsumer(name string) error {
	if name == "" || name != spool.NameText(name) {
		return fmt.Errorf("the consumer %.60q is not a name of 1 to 255 bytes", name)
	}
	return nil
}
