package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// watched counts the calls of a publisher that fail, and collects what they return.
type watched struct {
	message.Publisher

	mu     sync.Mutex
	failed int
	kinds  map[string]int
}

func newWatched(to message.Publisher) *watched {
	return &watched{Publisher: to, kinds: map[string]int{}}
}

// Publish implements message.Publisher.
func (w *watched) Publish(topic string, messages ...*message.Message) error {
	err := w.Publisher.Publish(topic, messages...)
	if err != nil {
		w.mu.Lock()
		w.failed++
		w.kinds[kindOf(err)]++
		w.mu.Unlock()
	}
	return err
}

func (w *watched) failures() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// errors lists what the calls returned, the most frequent first.
func (w *watched) errors() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := make([]string, 0, len(w.kinds))
	for kind, count := range w.kinds {
		lines = append(lines, fmt.Sprintf("%5d × %s", count, kind))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return lines
}

var (
	ids       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	addresses = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// kindOf is the text of an error, without what differs from call to call, after the class that the
// outbox sees without settings for the broker.
func kindOf(err error) string {
	text := addresses.ReplaceAllString(ids.ReplaceAllString(err.Error(), "ID"), "ADDRESS")
	return classes[postbox.ClassifyNetwork(err)] + ": " + strings.Join(strings.Fields(text), " ")
}

var classes = map[postbox.ErrorClass]string{
	postbox.Unclassified: "unclassified", postbox.MessageFault: "message fault", postbox.Outage: "outage",
}
