package place

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// seqBytes is the number of a message, which its payload begins with.
const seqBytes = 8

// Filling returns so many bytes that no database can compress.
func Filling(size int) []byte {
	filling := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(filling) // never fails
	return filling
}

// Message returns a message of a key with its number, and with the filling.
func Message(key string, seq int64, filling []byte) *message.Message {
	payload := binary.BigEndian.AppendUint64(make([]byte, 0, seqBytes+len(filling)), uint64(seq)) //nolint:gosec // the bits are kept
	msg := message.NewMessage(postbox.NewMessageID(), append(payload, filling...))
	msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	return msg
}

// Number returns the key and the number of a message.
func Number(msg *message.Message) (key string, seq int64, err error) {
	if len(msg.Payload) < seqBytes {
		return "", 0, fmt.Errorf("a payload of %d bytes has no number", len(msg.Payload))
	}
	return msg.Metadata.Get(postbox.MetadataOrderingKey), int64(binary.BigEndian.Uint64(msg.Payload)), nil //nolint:gosec // the bits are kept
}
