package receive_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/receive"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/sign"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/postboxtest"
	"github.com/postbox-go/watermill-postbox/queue"
)

var secret = []byte("secret")

func endpoint(t *testing.T, db postbox.Database) *httptest.Server {
	t.Helper()
	require.NoError(t, postbox.Migrate(t.Context(), db))
	store, err := inboxstore.New(db, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	server := httptest.NewServer(&receive.Endpoint{Store: store, Source: "shop", Queue: "events", Secret: secret, Logger: watermill.NopLogger{}})
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, url, key string, header http.Header) int {
	t.Helper()
	body := []byte(`{"order": 1}`)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	sign.Sign(request.Header, secret, key, "ACME\nLtd", body)
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestEndpoint_G4_a_request_that_is_repeated_is_handled_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		server := endpoint(t, database.Postbox())
		var requests sync.WaitGroup
		for range 8 {
			requests.Go(func() { require.Equal(t, http.StatusAccepted, post(t, server.URL, "one", nil)) })
		}
		requests.Wait()
		require.Equal(t, http.StatusAccepted, post(t, server.URL, "two", nil))

		var handled []string
		kit := postboxtest.New(t, database.Postbox())
		kit.Drain("events", queue.Config{}, func(msg *message.Message) error {
			require.Equal(t, "ACME\nLtd", msg.Metadata.Get(postbox.MetadataOrderingKey))
			handled = append(handled, msg.UUID)
			return nil
		})
		require.Equal(t, []string{"one", "two"}, handled)
		require.Equal(t, http.StatusAccepted, post(t, server.URL, "one", nil), "a sender that comes late")
		require.Zero(t, kit.Drain("events", queue.Config{}, func(*message.Message) error { return nil }))
	})
}

func TestEndpoint_refuses_what_it_cannot_tell_apart_or_trust(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	server := endpoint(t, database.Postbox())
	require.Equal(t, http.StatusBadRequest, post(t, server.URL, "", nil))
	require.Equal(t, http.StatusBadRequest, post(t, server.URL, string(bytes.Repeat([]byte("k"), 70_000)), nil), "a key that is too long")
	for name, value := range map[string]string{sign.Signature: "v1,no", sign.Key: "another", sign.Subject: "another", sign.Timestamp: "1"} {
		require.Equal(t, http.StatusUnauthorized, post(t, server.URL, "one", http.Header{name: {value}}), name)
	}
	require.Zero(t, postboxtest.New(t, database.Postbox()).Drain("events", queue.Config{}, func(*message.Message) error { return nil }))
}

// The sender repeats what was not stored.
func TestEndpoint_G2_says_that_an_event_was_not_stored(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	server := endpoint(t, database.Postbox())
	require.NoError(t, database.DB.Close())
	require.Equal(t, http.StatusServiceUnavailable, post(t, server.URL, "one", nil))
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("the connection is gone")

// The sender takes 413 for good, so that it is only for what is too large.
func TestEndpoint_asks_again_for_a_body_that_did_not_come_whole(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]io.Reader{http.StatusRequestTimeout: broken{}, http.StatusRequestEntityTooLarge: bytes.NewReader(make([]byte, 2<<20))} {
		answer := httptest.NewRecorder()
		(&receive.Endpoint{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body))
		require.Equal(t, status, answer.Code)
	}
}
