// Package receive takes in webhooks. A sender repeats a request until it is answered, so the same
// one may come twice, at the same time, and to different processes. Each has its effect once.
//
// The HTTP handler stores an event in a queue, and answers only then. The sender's Idempotency-Key
// names the event, so a repeated one is answered alike and stored once. The queue handles it in a
// transaction of its own, with retries, in the order of its key, and however long that takes.
package receive

import (
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/sign"
	"github.com/postbox-go/watermill-postbox/inboxstore"
)

const maxBody = 1 << 20

// Endpoint is the HTTP handler of a source of webhooks. Its store has to remember a key for longer
// than the sender repeats a request: see ClaimRetention of inboxstore.Config.
type Endpoint struct {
	Store  *inboxstore.Store
	Source string // who sends, for example "payments-provider": two sources may use the same key
	Queue  string // where the events are stored
	Secret []byte
	Logger watermill.LoggerAdapter
}

// ServeHTTP answers 202 when the event is stored, whether now or by an earlier request. After every
// other answer, and after none, it may or may not be stored: the sender has to repeat it.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		status := http.StatusRequestTimeout // it did not come whole, and may come again
		if errors.As(err, new(*http.MaxBytesError)) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, err.Error(), status)
		return
	}
	if err := sign.Check(r.Header, e.Secret, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	key := r.Header.Get(sign.Key)
	if key == "" { // a repeated event would be a new one
		http.Error(w, sign.Key+" is missing", http.StatusBadRequest)
		return
	}
	msg := message.NewMessage(key, body)
	// Events of one subject are handled in the order in which they were stored.
	if subject, err := url.QueryUnescape(r.Header.Get(sign.Subject)); err == nil && subject != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, subject)
	}
	_, err = e.Store.Defer(r.Context(), e.Queue, inboxstore.Key{Consumer: e.Queue, Topic: e.Source, MessageID: key}, msg)
	switch {
	case errors.Is(err, postbox.ErrPermanent): // a key that is too long, say
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		e.Logger.Error("A webhook was not stored", err, watermill.LogFields{"source": e.Source})
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}
