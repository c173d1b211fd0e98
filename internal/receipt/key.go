package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/postbox-go/watermill-postbox/internal/msgid"
)

// scopeBytes is the number of bytes kept from the SHA-256 of topic and consumer. It is large enough
// to avoid collisions.
const scopeBytes = 16

// Key returns the key of a receipt in the table: the message id, and then 16 bytes for topic and
// consumer.
func Key(messageID, topic, consumer string) []byte {
	scope := binary.BigEndian.AppendUint64(nil, uint64(len(topic)))
	hash := sha256.Sum256(append(append(scope, topic...), consumer...))
	return append(prefix(messageID), hash[:scopeBytes]...)
}

// keys returns the first and the last key that a receipt of a message can have.
func keys(messageID string) (first, last []byte) {
	first = prefix(messageID)
	return first, append(bytes.Clone(first), bytes.Repeat([]byte{0xff}, scopeBytes)...)
}

// prefix is the part of a key that all receipts of a message share. It keeps no text, because one
// text can be the beginning of another.
func prefix(messageID string) []byte { return msgid.Append(nil, messageID, 0) }
