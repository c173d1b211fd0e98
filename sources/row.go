package sources

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// sourceMetadata is the metadata under which a dead letter keeps the metadata column of a row of a
// [WatermillSQL], if that could not be read.
const sourceMetadata = "postbox_source_metadata"

// sourceRow is a row as watermill-sql wrote it.
type sourceRow struct {
	id                      rowID
	uuid, payload, metadata []byte
}

func (r sourceRow) size() int { return len(r.payload) + len(r.metadata) }

// envelope is the wrapper that Watermill's components/forwarder puts around a message.
type envelope struct {
	DestinationTopic string            `json:"destination_topic"`
	UUID             string            `json:"uuid"`
	Payload          []byte            `json:"payload"`
	Metadata         map[string]string `json:"metadata"`
}

// decoder turns rows of a source into messages.
type decoder struct {
	source      watermillSQL
	orderingKey string
}

// draft reads a row. Its error is about the row, in words for an operator.
func (d decoder) draft(row sourceRow) (spool.Draft, error) {
	topic, msg, err := d.message(row)
	if err != nil {
		return spool.Draft{}, err
	}
	if msg.UUID == "" {
		msg.UUID = postbox.NewMessageID()
	}
	key, err := d.key(topic, msg)
	if err != nil {
		return spool.Draft{}, err
	}
	draft := spool.Draft{Topic: topic, MessageID: msg.UUID, Key: key, Payload: msg.Payload, Metadata: msg.Metadata}
	return draft, draft.Check()
}

func (d decoder) message(row sourceRow) (topic string, msg *message.Message, err error) {
	metadata, err := d.metadata(row)
	if err != nil {
		return "", nil, err
	}
	if !d.source.Envelope {
		msg = message.NewMessage(string(row.uuid), row.payload)
		msg.Metadata = metadata
		return d.source.Destination, msg, nil
	}
	var inner envelope
	if err := json.Unmarshal(row.payload, &inner); err != nil {
		return "", nil, fmt.Errorf("the payload is not an envelope of Watermill's forwarder: %w", err)
	}
	if inner.DestinationTopic == "" {
		return "", nil, errors.New("the payload is not an envelope of Watermill's forwarder: it names no destination topic")
	}
	if inner.UUID == "" {
		inner.UUID = string(row.uuid) // stays the same, however often the message is sent
	}
	msg = message.NewMessage(inner.UUID, inner.Payload)
	if inner.Metadata != nil {
		msg.Metadata = inner.Metadata
	}
	return inner.DestinationTopic, msg, nil
}

func (d decoder) metadata(row sourceRow) (message.Metadata, error) {
	metadata := message.Metadata{}
	if len(row.metadata) == 0 {
		return metadata, nil
	}
	if err := json.Unmarshal(row.metadata, &metadata); err != nil {
		return nil, fmt.Errorf("the metadata is not a JSON object of strings: %w", err)
	}
	if metadata == nil { // a stored null
		metadata = message.Metadata{}
	}
	return metadata, nil
}

// key returns the ordering key, and stores a key from the user's function in the metadata. A panic
// of that function is an error like any other: the next poll would meet the same row.
func (d decoder) key(topic string, msg *message.Message) (key string, err error) {
	if d.source.KeyFrom == nil {
		if key = msg.Metadata.Get(d.orderingKey); key == "" {
			key = topic
		}
		return key, nil
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("KeyFrom panics: %v", reason)
		}
	}()
	if key = d.source.KeyFrom(topic, msg); key != "" {
		msg.Metadata.Set(d.orderingKey, key)
	}
	return key, nil
}

// remains is the metadata that a dead letter keeps of a row that cannot be read.
func (d decoder) remains(row sourceRow) map[string]string {
	metadata, err := d.metadata(row)
	if err != nil {
		return map[string]string{sourceMetadata: string(row.metadata)}
	}
	return metadata
}

// subject names a row in the table of dead letters.
func (d decoder) subject(row sourceRow) []byte {
	subject := []byte{'s'}
	for _, part := range []int64{keyhash.Of(d.source.Table), row.id.Transaction, row.id.Offset} {
		subject = binary.BigEndian.AppendUint64(subject, uint64(part)) //nolint:gosec // the bits are kept
	}
	return subject
}
