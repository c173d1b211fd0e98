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

// maxOutages limits the outages of a heartbeat: when a broker is away, each of its topics has one.
const maxOutages = 100

// Heartbeat is what a drainer says of itself when it renews its membership.
type Heartbeat struct {
	InFlight map[string]int       // messages that it is handling, by topic
	Outages  map[string]time.Time // topics whose circuit is open, with the time at which it opened
	Limits   postbox.Limits       // that it is configured with
	// LongCall is the call that has not returned for longest, or nil while none has run for long.
	LongCall *Call
	// Work says what the process does with the messages. All processes that share a spool should do
	// the same.
	Work string
}

// Call is a call of a publisher or a handler, with its first message.
type Call struct {
	Since     time.Time // by the clock of the process
	Topic     string
	ID        int64
	MessageID string
}

// storedHeartbeat is the stored form. That of a heartbeat without anything else is the map of the
// messages in flight alone.
type storedHeartbeat struct {
	InFlight map[string]int   `json:"in_flight"`
	Outages  map[string]int64 `json:"outages,omitempty"` // µs
	Limits   storedLimits     `json:"limits,omitzero"`
	LongCall *storedCall      `json:"long_call,omitempty"`
	Work     string           `json:"work,omitempty"`
}

type storedCall struct {
	Since     int64  `json:"since"` // µs
	Topic     string `json:"topic"`
	ID        int64  `json:"id"`
	MessageID string `json:"message_id"`
}

// Encode returns the stored form, with the outages that began first, and limits of the first
// topics.
func (h Heartbeat) Encode() string {
	var stored any = h.InFlight
	if len(h.Outages) > 0 || !NoLimits(h.Limits) || h.LongCall != nil || h.Work != "" {
		topics := slices.SortedFunc(maps.Keys(h.Outages), func(a, b string) int {
			return cmp.Or(h.Outages[a].Compare(h.Outages[b]), cmp.Compare(a, b))
		})
		outages := map[string]int64{}
		for _, topic := range topics[:min(len(topics), maxOutages)] {
			outages[topic] = h.Outages[topic].UnixMicro()
		}
		stored = storedHeartbeat{h.InFlight, outages, storeLimits(h.Limits), h.LongCall.store(), h.Work}
	}
	text, err := json.Marshal(stored)
	if err != nil || h.InFlight == nil {
		return "{}" // maps of strings to numbers can always be encoded as JSON
	}
	return ascii(string(text))
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
func DecodeHeartbeat(text []byte) (Heartbeat, error) {
	h := Heartbeat{}
	if json.Unmarshal(text, &h.InFlight) == nil {
		return h, nil
	}
	var stored storedHeartbeat
	if err := json.Unmarshal(text, &stored); err != nil {
		return Heartbeat{}, fmt.Errorf("decode a heartbeat: %w", err)
	}
	h = Heartbeat{InFlight: stored.InFlight, Outages: map[string]time.Time{}, Limits: stored.Limits.limits(), Work: stored.Work}
	for topic, at := range stored.Outages {
		h.Outages[topic] = time.UnixMicro(at)
	}
	if c := stored.LongCall; c != nil {
		h.LongCall = &Call{time.UnixMicro(c.Since), c.Topic, c.ID, c.MessageID}
	}
	return h, nil
}

func (c *Call) store() *storedCall {
	if c == nil {
		return nil
	}
	return &storedCall{c.Since.UnixMicro(), c.Topic, c.ID, c.MessageID}
}
