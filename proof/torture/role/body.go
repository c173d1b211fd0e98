package role

import (
	"encoding/json"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
)

// body is the payload of a message: its intent, so that handlers need not look it up.
type body struct {
	ledger.Intent

	// Padding makes it large.
	Padding string
}

// large is more than what is read along with a message's row.
const large = 100 << 10

func newMessage(intent ledger.Intent, padding int) (*message.Message, error) {
	payload, err := json.Marshal(body{intent, strings.Repeat("x", padding)})
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage(intent.Message, payload)
	if intent.Key != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, intent.Key)
	}
	return msg, nil
}

func readMessage(msg *message.Message) (ledger.Intent, error) {
	var b body
	if err := json.Unmarshal(msg.Payload, &b); err != nil {
		return ledger.Intent{}, postbox.Permanent(err)
	}
	return b.Intent, nil
}

// record is a record about a message.
func record(kind history.Kind, i ledger.Intent, consumer string) history.Record {
	return history.Record{
		Kind: kind, Message: i.Message, Topic: i.Topic, Consumer: consumer, Key: i.Key, Turn: i.Turn, Plan: i.Plan,
	}
}
