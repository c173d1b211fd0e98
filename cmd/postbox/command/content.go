package command

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postbox-go/watermill-postbox/admin"
)

// contentRecord is what only a single message or dead letter shows.
type contentRecord struct {
	// Payload is set if the payload is UTF-8, PayloadBase64 if it is not, and neither if there is
	// no payload.
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	Metadata      map[string]string `json:"metadata"`
	Failures      []admin.Failure   `json:"failures"`
}

// binary returns a text that JSON cannot have as it is, for a field in Base64, or nil.
func binary(text string) []byte {
	if utf8.ValidString(text) {
		return nil
	}
	return []byte(text)
}

func contentOf(payload []byte, metadata map[string]string, failures []admin.Failure) *contentRecord {
	c := &contentRecord{Metadata: metadata, Failures: make([]admin.Failure, len(failures))}
	if text := string(payload); payload != nil && utf8.Valid(payload) {
		c.Payload = &text
	} else {
		c.PayloadBase64 = payload
	}
	for i, f := range failures {
		c.Failures[i] = f
		c.Failures[i].At = utc(f.At)
	}
	return c
}

// maxShown is how many bytes of a payload the text shows.
const maxShown = 16 << 10

// text is the content for people.
func (c *contentRecord) text() string {
	var text strings.Builder
	if len(c.Metadata) > 0 {
		text.WriteString("\nMetadata:\n")
		for _, name := range slices.Sorted(maps.Keys(c.Metadata)) {
			fmt.Fprintf(&text, "  %s: %s\n", cell(name), cell(c.Metadata[name]))
		}
	}
	if len(c.Failures) > 0 {
		text.WriteString("\nFailures:\n")
		for _, f := range c.Failures {
			title := fmt.Sprintf("attempt %d", f.Attempt)
			if f.Attempt == 0 {
				title = "note"
			}
			fmt.Fprintf(&text, "  %s, %s, by %s\n  %s\n", title, moment(f.At), cell(f.Process), block(f.Error))
		}
	}
	text.WriteString("\nPayload:\n")
	text.WriteString(c.payloadText())
	return text.String()
}

func (c *contentRecord) payloadText() string {
	switch {
	case c.Payload == nil && c.PayloadBase64 == nil:
		return "  (none)\n"
	case c.Payload == nil:
		return fmt.Sprintf("  (%s that are no text: use -o json)\n", count(len(c.PayloadBase64), "byte"))
	case *c.Payload == "":
		return "  (empty)\n"
	case len(*c.Payload) > maxShown:
		return block(strings.ToValidUTF8((*c.Payload)[:maxShown], "")) + fmt.Sprintf("\n  (the first %d of %d bytes: use -o json for all)\n", maxShown, len(*c.Payload))
	default:
		return block(*c.Payload) + "\n"
	}
}
