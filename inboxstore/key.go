package inboxstore

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/google/uuid"
	"github.com/oklog/ulid"
)

// Key names a message to one consumer: the same message has another key for another consumer, and a message id
// may come again on another topic.
type Key struct {
	Consumer  string
	Topic     string
	MessageID string
}

// How the message id stands in the stored key. Each form can be told from the others, so no two ids share one.
const (
	formText   = 0
	formUUID   = 1
	formULID   = 2
	formDigest = 3
)

// maxTextID is the longest id in bytes that is stored as it is: with the scope it fits in the key of every
// database. Longer ones are stored as their SHA-256.
const maxTextID = 200

// formLock is the form of a key that is no claim, but a lock on one: see [Store.RecordFailure].
const formLock = 0xff

// lockOf returns the key of the lock on a claim.
func lockOf(claim []byte) []byte {
	lock := append([]byte(nil), claim...)
	lock[scopeBytes] = formLock
	return lock
}

// uuidLength is that of the usual form.
const uuidLength = len("00000000-0000-0000-0000-000000000000")

// scopeBytes is how much of the SHA-256 of consumer and topic is kept: enough that two of them never meet.
const scopeBytes = 16

// bytes returns the stored form: 16 bytes for consumer and topic, one for the form of the id, and the id, which
// is 16 bytes when it is a UUID or a ULID. Ids that are ordered by time stay so, which keeps the index small.
func (k Key) bytes() []byte {
	scope := binary.BigEndian.AppendUint64(nil, uint64(len(k.Consumer)))
	hash := sha256.Sum256(append(append(scope, k.Consumer...), k.Topic...))
	key := append(make([]byte, 0, scopeBytes+1+len(uuid.Nil)), hash[:scopeBytes]...) // and room for most ids

	if id, err := uuid.Parse(k.MessageID); err == nil && isCanonical(k.MessageID) {
		return append(append(key, formUUID), id[:]...)
	}
	if id, err := ulid.ParseStrict(k.MessageID); err == nil && id.String() == k.MessageID {
		return append(append(key, formULID), id[:]...)
	}
	if len(k.MessageID) <= maxTextID {
		return append(append(key, formText), k.MessageID...)
	}
	digest := sha256.Sum256([]byte(k.MessageID))
	return append(append(key, formDigest), digest[:]...)
}

// isCanonical tells whether an id that is a UUID stands as UUIDs are written: in lower case, with hyphens and nothing
// around it. Any other spelling is another id to Watermill.
func isCanonical(id string) bool { return len(id) == uuidLength && strings.ToLower(id) == id }
