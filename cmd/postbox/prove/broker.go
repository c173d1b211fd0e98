package prove

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// wire is a message on its way through the broker.
type wire struct {
	ID       string            `json:"id"`
	Key      string            `json:"key,omitempty"`
	Metadata map[string]string `json:"metadata"`
	Payload  []byte            `json:"payload"`
	// Tag names a delivery.
	Tag uint64 `json:"tag,omitempty"`
}

// mode is how the broker behaves.
type mode int

const (
	working mode = iota
	// refusing answers with an error and stores nothing, losing stores and answers with an error,
	// and silent does one of both and gives no answer. A silent broker delivers nothing.
	refusing
	losing
	silent
	modes
)

// The groups of receivers: each gets every message.
const (
	inboxGroup = "inbox"
	queueGroup = "queue"
	batchGroup = "batch"
)

var groupNames = []string{inboxGroup, queueGroup, batchGroup}

const (
	// window is how many messages a receiver has at a time.
	window = 8
	// One acknowledgement in lostAcks is lost, so that the message comes again, and one message in
	// twins goes to two receivers at once.
	lostAcks = 30
	twins    = 40
)

// broker keeps messages in memory and delivers each at least once to each group, those of a key one
// after the other and in order. It listens on a port of this machine for clients that know its
// secret.
type broker struct {
	secret   string
	listener net.Listener
	server   *http.Server

	mu     sync.Mutex
	dice   *mathrand.Rand
	mode   mode
	mended chan struct{} // closed when a silent broker works again
	groups map[string]*group
	number uint64 // of deliveries and of messages without a key

	twice int // deliveries that were made once more
}

// line has the messages of a key that a group has not acknowledged.
type line struct {
	key      string
	messages []wire
}

type group struct {
	lines     map[string]*line
	ready     []*line // those of which no message is being handled
	receivers map[*receiver]bool
}

type receiver struct {
	out   chan wire
	holds map[uint64]*line // nil for a second delivery
}

func newBroker(dice *mathrand.Rand) (*broker, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, fmt.Errorf("host a broker: %w", err)
	}
	b := &broker{secret: rand.Text(), listener: listener, dice: dice, groups: map[string]*group{}}
	for _, name := range groupNames {
		b.groups[name] = &group{lines: map[string]*line{}, receivers: map[*receiver]bool{}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /publish", b.publish)
	mux.HandleFunc("POST /receive", b.receive)
	mux.HandleFunc("POST /settle", b.settle)
	b.server = &http.Server{Handler: b.guard(mux), ReadHeaderTimeout: time.Minute}
	go func() { _ = b.server.Serve(listener) }()
	return b, nil
}

func (b *broker) close() {
	b.setMode(working)
	_ = b.server.Close()
}

func (b *broker) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != b.secret {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// setMode lets the broker fail, or work again.
func (b *broker) setMode(m mode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mode == silent {
		close(b.mended)
	}
	if b.mode = m; m == silent {
		b.mended = make(chan struct{})
		return
	}
	for _, g := range b.groups {
		b.deliver(g)
	}
}

// left is how many messages some group has not acknowledged.
func (b *broker) left() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.groups {
		for _, l := range g.lines {
			n += len(l.messages)
		}
	}
	return n
}

func (b *broker) publish(w http.ResponseWriter, r *http.Request) {
	var msg wire
	if err := json.NewDecoder(r.Body).Decode(&msg); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	now, mended := b.mode, b.mended
	if now == working || now == losing || now == silent && b.dice.IntN(2) == 0 {
		b.store(msg)
	}
	b.mu.Unlock()
	if now == silent {
		select {
		case <-mended:
		case <-r.Context().Done():
		}
	}
	if now != working {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (b *broker) store(msg wire) {
	key := msg.Key
	if key == "" {
		b.number++
		key = "\x00" + strconv.FormatUint(b.number, 10)
	}
	for _, g := range b.groups {
		l := g.lines[key]
		if l == nil {
			l = &line{key: key}
			g.lines[key] = l
		}
		if l.messages = append(l.messages, msg); len(l.messages) == 1 {
			g.ready = append(g.ready, l)
		}
		b.deliver(g)
	}
}

// deliver gives messages to receivers that have room for them.
func (b *broker) deliver(g *group) {
	for b.mode != silent && len(g.ready) > 0 {
		to := g.free(nil)
		if to == nil {
			return
		}
		l := g.ready[0]
		g.ready = g.ready[1:]
		b.hand(to, l, l)
		if second := g.free(to); second != nil && b.dice.IntN(twins) == 0 {
			b.twice++
			b.hand(second, l, nil)
		}
	}
}

func (b *broker) hand(to *receiver, l, holds *line) {
	b.number++
	msg := l.messages[0]
	msg.Tag = b.number
	to.holds[msg.Tag] = holds
	to.out <- msg // there is room
}

// free is the receiver with the most room, apart from one.
func (g *group) free(but *receiver) (found *receiver) {
	for r := range g.receivers {
		if r != but && len(r.holds) < window && (found == nil || len(r.holds) < len(found.holds)) {
			found = r
		}
	}
	return found
}

// receive sends messages until the client is gone, and gives those that it has not acknowledged to
// others.
func (b *broker) receive(w http.ResponseWriter, r *http.Request) {
	g := b.groups[r.URL.Query().Get("group")]
	to := &receiver{out: make(chan wire, 2*window), holds: map[uint64]*line{}}
	b.mu.Lock()
	g.receivers[to] = true
	b.deliver(g)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(g.receivers, to)
		for _, l := range to.holds {
			if l != nil {
				g.ready = append(g.ready, l)
			}
		}
		b.deliver(g)
	}()
	flusher := http.NewResponseController(w)
	if flusher.Flush() != nil {
		return
	}
	for {
		select {
		case msg := <-to.out:
			if json.NewEncoder(w).Encode(msg) != nil || flusher.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// settle takes an acknowledgement, or its opposite.
func (b *broker) settle(_ http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	g := b.groups[query.Get("group")]
	tag, err := strconv.ParseUint(query.Get("tag"), 10, 64)
	if err != nil || g == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := range g.receivers {
		l, known := from.holds[tag]
		if !known {
			continue
		}
		delete(from.holds, tag)
		if l != nil {
			b.settled(g, l, query.Get("ack") == "true")
		}
		b.deliver(g)
	}
}

func (b *broker) settled(g *group, l *line, done bool) {
	if done && b.dice.IntN(lostAcks) == 0 {
		done = false
		b.twice++
	}
	if done {
		l.messages = l.messages[1:]
	}
	if len(l.messages) == 0 {
		delete(g.lines, l.key)
		return
	}
	g.ready = append(g.ready, l)
}

// client talks to the broker.
type client struct {
	address, secret string
	http            *http.Client
}

// answerPatience is how long a client waits for the broker.
const answerPatience = time.Second

var errBroker = errors.New("the broker has returned an error, on purpose")

func (c *client) post(ctx context.Context, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+path, bodyOf(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", c.secret)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, errBroker
	}
	return response, nil
}

func (c *client) send(ctx context.Context, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	response, err := c.post(ctx, path, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
