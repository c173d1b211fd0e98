package inboxstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/google/uuid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/msgid"
)

// Key identifies a message for one consumer. The same message has another key for another consumer,
// and the same message id may occur on another topic.
type Key struct {
	Consumer  string
	Topic     string
	MessageID string
}

var errNoMessageID = errors.New("the key has no MessageID, so all messages of its consumer and topic would be the same one: give each message an id of its own")

// validate returns a permanent error if the key cannot tell messages apart, because it has no
// MessageID: the second message would be a duplicate of the first, and would be lost.
func (k Key) validate() error {
	if k.MessageID == "" {
		return postbox.Permanent(errNoMessageID)
	}
	return nil
}

// maxTextID is the length in bytes up to which an id is stored unchanged: with the scope it fits in
// the key of every database. Longer ids are stored as their SHA-256.
const maxTextID = 200

// formLock is the form of a key that locks a claim instead of being one: see [Store.RecordFailure].
const formLock = 0xff

// lockOf returns the key of the lock on a claim.
func lockOf(claim []byte) []byte {
	lock := append([]byte(nil), claim...)
	lock[scopeBytes] = formLock
	return lock
}

// scopeBytes is the number of bytes kept from the SHA-256 of consumer and topic. It is large enough
// to avoid collisions.
const scopeBytes = 16

// bytes returns the stored form of the key: 16 bytes for consumer and topic, one byte for the form
// of the id, and the id.
func (k Key) bytes() []byte {
	scope := binary.BigEndian.AppendUint64(nil, uint64(len(k.Consumer)))
	hash := sha256.Sum256(append(append(scope, k.Consumer...), k.Topic...))
	key := append(make([]byte, 0, scopeBytes+1+len(uuid.Nil)), hash[:scopeBytes]...) // with room for most ids
	return msgid.Append(key, k.MessageID, maxTextID)
}
