package send_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/send"
)

// An answer is about the event, and then it is a dead letter, or about the endpoint, and then all
// its events wait. A redirect is not followed: it would become a GET without the event.
func TestPublisher_says_whose_fault_an_answer_is(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer server.Close()
	for status, away := range map[int]bool{
		http.StatusMovedPermanently: true, http.StatusUnauthorized: true, http.StatusNotFound: true, http.StatusTooManyRequests: true,
		http.StatusBadGateway: true, http.StatusBadRequest: false, http.StatusGone: false, http.StatusUnprocessableEntity: false,
	} {
		endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", server.URL)
			w.WriteHeader(status)
		}))
		publisher := &send.Publisher{Endpoints: map[string]send.Endpoint{"shop": {URL: endpoint.URL}}, Client: &http.Client{Timeout: time.Minute}}
		err := publisher.Publish("shop", send.Event(t.Context(), "shop", "ACME\nLtd", []byte("{}")))
		endpoint.Close()
		require.ErrorContains(t, err, "answered", "a subject may be any text")
		if away {
			require.Equal(t, postbox.Outage, send.Classify(err), "%d", status)
			require.NotErrorIs(t, err, postbox.ErrPermanent)
		} else {
			require.ErrorIs(t, err, postbox.ErrPermanent, "%d", status)
		}
	}
	require.Zero(t, asked)
}
