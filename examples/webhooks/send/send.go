// Package send sends webhooks to the endpoints of customers. An event is written to the outbox in
// the transaction of the change that it tells of, so none is lost and none is made up. From there a
// forwarder sends it: signed, to each endpoint in the order of the commits, and as fast as the
// endpoint wants. An endpoint that is away holds up no other. One that refuses an event gets the
// next ones, and the refused one becomes a dead letter, which can be sent again.
//
// An endpoint may get an event twice, since a crash can come between its answer and our note of it.
// It tells them apart by the Idempotency-Key, which is the id of the message.
package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/examples/webhooks/sign"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Endpoint is where the events of a customer go.
type Endpoint struct {
	URL    string
	Secret []byte
	// PerSecond is how many events it wants at most; 0 for no limit.
	PerSecond float64
}

// subject is the metadata of what an event is about.
const subject = "subject"

// Event returns a webhook about a subject for an endpoint, in the transaction of ctx. Publish it to
// the outbox with the name of the endpoint as its topic. The events of an endpoint are sent one
// after the other, since they have one ordering key. With a key of endpoint and subject, those
// about different subjects would be sent at a time.
func Event(ctx context.Context, endpoint, about string, body []byte) *message.Message {
	msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), body)
	msg.Metadata.Set(postbox.MetadataOrderingKey, endpoint)
	msg.Metadata.Set(subject, about)
	return msg
}

// Config returns that of the forwarder. The name of an endpoint is the topic of its events: each
// topic has a circuit of its own. Change it when endpoints change, and start the forwarder again.
func Config(endpoints map[string]Endpoint) forwarder.Config {
	limits := map[string]postbox.Limit{}
	for name, e := range endpoints {
		limits[name] = postbox.Limit{PerSecond: e.PerSecond}
	}
	return forwarder.Config{
		Outbox: "webhooks", Destination: "endpoints of customers",
		Limits:   postbox.Limits{Topics: limits},
		Classify: Classify,
	}
}

// Publisher is a publisher of Watermill that sends messages by HTTP.
type Publisher struct {
	Endpoints map[string]Endpoint
	Client    *http.Client // its Timeout bounds a call
}

// Close does nothing.
func (p *Publisher) Close() error { return nil }

// Publish sends messages one after the other. It returns after the endpoint has answered.
func (p *Publisher) Publish(name string, messages ...*message.Message) error {
	endpoint, known := p.Endpoints[name]
	if !known { // a process of another version may know it
		return fmt.Errorf("endpoint %q is not configured", name)
	}
	for _, msg := range messages {
		if err := p.send(endpoint, msg); err != nil {
			return fmt.Errorf("webhook to %s: %w", name, err)
		}
	}
	return nil
}

// AnswerError is an answer that says that an endpoint has not taken an event.
type AnswerError struct {
	Status int
	Body   string
}

// Error implements error.
func (a *AnswerError) Error() string { return fmt.Sprintf("answered %d: %s", a.Status, a.Body) }

func (p *Publisher) send(to Endpoint, msg *message.Message) error {
	request, err := http.NewRequestWithContext(msg.Context(), http.MethodPost, to.URL, bytes.NewReader(msg.Payload))
	if err != nil {
		return postbox.Permanent(err)
	}
	request.Header.Set("Content-Type", "application/json")
	sign.Sign(request.Header, to.Secret, msg.UUID, msg.Metadata.Get(subject), msg.Payload)
	client := *p.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // it would become a GET
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	const beginning = 500
	body, _ := io.ReadAll(io.LimitReader(response.Body, beginning)) // for people alone
	_ = response.Body.Close()
	if response.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	answer := &AnswerError{Status: response.StatusCode, Body: string(body)}
	if away(answer.Status) {
		return answer
	}
	return postbox.Permanent(answer) // it would not like this event later either
}

// Classify says that an endpoint that has no time, fails, has moved or does not know us is away for
// all its events: they wait, and no attempt counts. Errors of the network are an outage by
// themselves.
func Classify(err error) postbox.ErrorClass {
	if answer := (*AnswerError)(nil); errors.As(err, &answer) && away(answer.Status) {
		return postbox.Outage
	}
	return postbox.Unclassified
}

func away(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	default:
		return status < http.StatusBadRequest || status >= http.StatusInternalServerError
	}
}
