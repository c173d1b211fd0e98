package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// longest is the length in bytes of the longest ids, keys and metadata that a store must take.
const longest = 10_000

// anyBytes is a string that a text column would refuse, change or cut off.
const anyBytes = "\x00a\xff\xc3\x28é\x00 "

// distinctIDs returns different ids that a careless store takes for the same.
func distinctIDs() []string {
	const (
		uuidText = "018f4d2e-7c1a-7abc-8def-0123456789ab"
		uuidRaw  = "\x01\x8f\x4d\x2e\x7c\x1a\x7a\xbc\x8d\xef\x01\x23\x45\x67\x89\xab"
		ulidText = "01HX6JWZ0TABCDEFGHJKMNPQRS"
	)
	long := strings.Repeat("x", longest)
	digest := sha256.Sum256([]byte(long))
	ids := []string{
		// Collations, blanks and bytes that end strings.
		"a", "A", "ä", "a ", " a", "a\t", "a\x00", "\x00a", "\x00", "\x00\x00", "\xff", "\xfe", "\uFFFD", anyBytes,
		"é", "e\u0301", "ss", "ß", "ı", "i", "I", "%", "_", "'", "\\", "NULL",
		// Columns that turn text into numbers.
		"1", "01", "1.0", "1e0", "+1", "0x1", "true",
		// UUIDs and ULIDs in all spellings, which a store may keep in fewer bytes.
		uuidText, strings.ToUpper(uuidText), strings.ReplaceAll(uuidText, "-", ""), "{" + uuidText + "}",
		"urn:uuid:" + uuidText, uuidRaw, "018f4d2e-7c1a-7abc-8def-0123456789aa",
		ulidText, strings.ToLower(ulidText), "O" + ulidText[1:], ulidText[:25] + "T",
		// Long ids, which a store may cut off or hash, together with their own hashes.
		long, "y" + long[1:], long[1:] + "y", long[1:], long[:5000] + "y" + long[5001:],
		string(digest[:]), hex.EncodeToString(digest[:]), strings.ToUpper(hex.EncodeToString(digest[:])),
	}
	for _, length := range []int{36, 64, 200, 255, 767, 3072} { // lengths at which keys and columns often end
		ids = append(ids, long[:length], long[:length+1])
	}
	for bit := range 8 {
		ids = append(ids, "message "+string([]byte{'m' ^ 1<<bit, 'm'}), "message "+string([]byte{'m', 'm' ^ 1<<bit}))
	}
	return ids
}

// anyBytesMessage is a message of which every part is hard to keep.
func anyBytesMessage() *message.Message {
	msg := message.NewMessage(anyBytes+strings.Repeat("i", longest-len(anyBytes)), []byte(anyBytes))
	msg.Metadata.Set(postbox.MetadataOrderingKey, anyBytes+strings.Repeat("k", 1000))
	msg.Metadata.Set(anyBytes, anyBytes)
	msg.Metadata.Set("", "no name")
	msg.Metadata.Set("no value", "")
	msg.Metadata.Set(strings.Repeat("n", longest), strings.Repeat("v", longest))
	return msg
}
