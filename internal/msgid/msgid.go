// Package msgid gives message ids the short form that they have in the keys of tables.
package msgid

import (
	"crypto/sha256"
	"strings"

	"github.com/google/uuid"
	"github.com/oklog/ulid"
)

// The forms of a message id in a key. The forms are distinguishable, so no two ids have the same
// key.
const (
	formText   = 0
	formUUID   = 1
	formULID   = 2
	formDigest = 3
)

// uuidLength is the length of a UUID in its usual form.
const uuidLength = len("00000000-0000-0000-0000-000000000000")

// Append appends one byte for the form of the id, and the id. A UUID or a ULID takes 16 bytes.
// Another id of up to maxText bytes is appended unchanged, and a longer one as its SHA-256. Ids
// that are ordered by time remain ordered, which keeps an index small.
func Append(key []byte, id string, maxText int) []byte {
	if parsed, err := uuid.Parse(id); err == nil && isCanonical(id) {
		return append(append(key, formUUID), parsed[:]...)
	}
	if parsed, err := ulid.ParseStrict(id); err == nil && parsed.String() == id {
		return append(append(key, formULID), parsed[:]...)
	}
	if len(id) <= maxText {
		return append(append(key, formText), id...)
	}
	digest := sha256.Sum256([]byte(id))
	return append(append(key, formDigest), digest[:]...)
}

// isCanonical reports whether an id that parses as a UUID has the canonical spelling: in lower
// case, with hyphens and nothing around it. To Watermill any other spelling is another id.
func isCanonical(id string) bool { return len(id) == uuidLength && strings.ToLower(id) == id }
