// Package sign signs webhooks, and checks their signatures: an HMAC with SHA-256 of the key that
// names the event, its subject, the time and the body. All of them are signed so that a recorded
// request cannot be sent again as another event, or much later.
package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The headers of a webhook.
const (
	Key       = "Idempotency-Key" // names the event
	Subject   = "Webhook-Subject" // says what it is about, in the form of a query
	Timestamp = "Webhook-Timestamp"
	Signature = "Webhook-Signature"
)

// tolerance is how far the clocks of both sides may be apart, and how long a request may be on its
// way.
const tolerance = 5 * time.Minute

var (
	errSignature = errors.New("the signature is wrong")
	errTime      = errors.New("the timestamp is too far from now")
)

// Sign sets the headers.
func Sign(header http.Header, secret []byte, key, subject string, body []byte) {
	at := strconv.FormatInt(time.Now().Unix(), 10)
	header.Set(Key, key)
	header.Set(Subject, url.QueryEscape(subject))
	header.Set(Timestamp, at)
	header.Set(Signature, "v1,"+mac(secret, header, body))
}

// Check returns an error if the body was not signed with the secret.
func Check(header http.Header, secret, body []byte) error {
	at := header.Get(Timestamp)
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", Timestamp, err)
	}
	if time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return errTime
	}
	if !hmac.Equal([]byte(header.Get(Signature)), []byte("v1,"+mac(secret, header, body))) {
		return errSignature
	}
	return nil
}

func mac(secret []byte, header http.Header, body []byte) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%q.%q.%q.", header.Get(Key), header.Get(Subject), header.Get(Timestamp))
	h.Write(body)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}
