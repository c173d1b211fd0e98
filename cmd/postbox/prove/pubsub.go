package prove

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
)

// topic is the only topic.
const topic = "intents"

func bodyOf(content []byte) io.Reader { return bytes.NewReader(content) }

func newClient(address, secret string) *client {
	return &client{address, secret, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4 * window}}}
}

// publisher sends messages to the broker.
type publisher struct{ client *client }

// Publish implements message.Publisher.
func (p publisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		body, err := json.Marshal(wire{ID: msg.UUID, Key: msg.Metadata.Get(postbox.MetadataOrderingKey), Metadata: msg.Metadata, Payload: msg.Payload})
		if err != nil {
			return postbox.Permanent(err)
		}
		if err := p.client.send(msg.Context(), "/publish", body); err != nil {
			return err
		}
	}
	return nil
}

// Close implements message.Publisher.
func (publisher) Close() error { return nil }

// subscriber receives the messages of a group.
type subscriber struct {
	client *client
	group  string
	// early acknowledges messages before they are handled, for tests.
	early bool

	closing context.Context //nolint:containedctx // the life of the subscriber
	close   context.CancelFunc
	running sync.WaitGroup
}

func newSubscriber(c *client, group string) *subscriber {
	s := &subscriber{client: c, group: group}
	s.closing, s.close = context.WithCancel(context.Background())
	return s
}

// Subscribe implements message.Subscriber.
func (s *subscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel) //nolint:contextcheck // it has a life of its own
	s.running.Go(func() {
		defer close(out)
		defer cancel()
		defer stop()
		var handling sync.WaitGroup
		defer handling.Wait()
		for ctx.Err() == nil {
			s.receive(ctx, out, &handling)
			wait(ctx, retryPause)
		}
	})
	return out, nil
}

// receive hands out messages until the connection ends.
func (s *subscriber) receive(ctx context.Context, out chan<- *message.Message, handling *sync.WaitGroup) {
	response, err := s.client.post(ctx, "/receive?group="+s.group, nil)
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }()
	decoder := json.NewDecoder(response.Body)
	for {
		var w wire
		if decoder.Decode(&w) != nil {
			return
		}
		msg := message.NewMessage(w.ID, w.Payload)
		msg.Metadata = w.Metadata
		ctx, cancel := context.WithCancel(ctx)
		msg.SetContext(ctx)
		if s.early {
			s.settle(ctx, w.Tag, true)
		}
		select {
		case out <- msg:
			handling.Go(func() {
				defer cancel()
				s.await(ctx, msg, w.Tag)
			})
		case <-ctx.Done():
			cancel()
			return
		}
	}
}

func (s *subscriber) await(ctx context.Context, msg *message.Message, tag uint64) {
	select {
	case <-msg.Acked():
		s.settle(ctx, tag, true)
	case <-msg.Nacked():
		s.settle(ctx, tag, false)
	case <-s.closing.Done():
	}
}

// settle tells the broker once. If that fails, the broker still has the message in this
// connection, so the client goes on until the broker has heard it.
func (s *subscriber) settle(ctx context.Context, tag uint64, done bool) {
	path := fmt.Sprintf("/settle?group=%s&tag=%d&ack=%t", s.group, tag, done)
	for s.client.send(ctx, path, nil) != nil && wait(ctx, retryPause) {
	}
}

// Close implements message.Subscriber.
func (s *subscriber) Close() error {
	s.close()
	s.running.Wait()
	return nil
}

// retryPause is between two tries of anything.
const retryPause = 50 * time.Millisecond

// wait returns false if ctx ends first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
