package spool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	postbox "github.com/postbox-go/watermill-postbox"
)

// mostTopics limits the outages and the limits of topics in a heartbeat: when a broker is away,
// each of its topics has an outage.
const mostTopics = 100

// Heartbeat is what a drainer says of itself when it renews its membership.
type Heartbeat struct {
	InFlight map[string]int       `json:"in_flight,omitempty"` // messages that it is handling, by topic
	Outages  map[string]time.Time `json:"outages,omitempty"`   // topics whose circuit is open, with the time at which it opened
	Tries    map[string]time.Time `json:"tries,omitempty"`     // when one of these topics is tried again, unless it is being tried
	Limits   postbox.Limits       `json:"limits,omitzero"`     // that it is configured with
	// LongCall is the call that has not returned for longest, or nil while none has run for long.
	LongCall *Call `json:"long_call,omitempty"`
	// Work says what the process does with the messages. All processes that share a spool should do
	// the same.
	Work string `json:"work,omitempty"`
}

// Call is a call of a publisher or a handler, with its first message.
type Call struct {
	Since     time.Time `json:"since"` // by the clock of the process
	Topic     string    `json:"topic"`
	ID        int64     `json:"id"`
	MessageID string    `json:"message_id"`
}

// Encode returns the stored form, with the outages that began first, and limits of the first
// topics.
func (h Heartbeat) Encode() string {
	began := h.Outages
	byAge := func(a, b string) int { return cmp.Or(began[a].Compare(began[b]), cmp.Compare(a, b)) }
	h.Outages, h.Tries = first(h.Outages, byAge), first(h.Tries, byAge)
	h.Limits.Topics = first(h.Limits.Topics, cmp.Compare[string])
	text, err := json.Marshal(h)
	if err != nil {
		return "{}" // a number and a text always have a form, and a time until the year 9999
	}
	return ascii(string(text))
}

// first returns the first topics in an order.
func first[V any](of map[string]V, order func(a, b string) int) map[string]V {
	kept := maps.Clone(of)
	topics := slices.SortedFunc(maps.Keys(of), order)
	for _, topic := range topics[min(len(topics), mostTopics):] {
		delete(kept, topic)
	}
	return kept
}

// ascii escapes the letters of JSON that not every character set has. The default of a database may
// be any, and a heartbeat that cannot be stored would stop the renewal of leases.
func ascii(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch first, second := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case first != utf8.RuneError:
			fmt.Fprintf(&out, `\u%04x\u%04x`, first, second)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// DecodeHeartbeat reads the stored form.
func DecodeHeartbeat(text []byte) (h Heartbeat, err error) {
	if err := json.Unmarshal(text, &h); err != nil {
		return Heartbeat{}, fmt.Errorf("decode a heartbeat: %w", err)
	}
	return h, nil
}
