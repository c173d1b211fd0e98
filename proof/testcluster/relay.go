package testcluster

import (
	"io"
	"net"
	"sync"
)

// Relay passes connections on to one server at a time. Clients keep its address when the server
// changes. It is safe for concurrent use.
type Relay struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	server string // "" while clients are cut off
	open   map[net.Conn]bool
	ended  bool
}

// NewRelay listens on a free port of the loopback interface. Until [Relay.Move] it ends each
// connection at once.
func NewRelay() (*Relay, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is over at once
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: listener, open: map[net.Conn]bool{}}
	r.running.Go(r.accept)
	return r, nil
}

// Address is where clients connect to.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Cut ends all connections, and each new one at once, until [Relay.Move].
func (r *Relay) Cut() { r.Move("") }

// Move ends all connections and leads new ones to the server.
func (r *Relay) Move(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = server
	for conn := range r.open {
		_ = conn.Close()
	}
	clear(r.open)
}

// Close ends all connections and stops listening.
func (r *Relay) Close() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	_ = r.listener.Close()
	r.Cut()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.join(client) })
	}
}

// join connects a client with the server and returns when either has ended the connection.
func (r *Relay) join(client net.Conn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	address := r.server
	r.mu.Unlock()
	if address == "" {
		return
	}
	server, err := net.Dial("tcp", address) //nolint:noctx // loopback
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !r.register(address, client, server) {
		return
	}
	defer r.forget(client, server)
	both := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close() // which ends the other direction
		both <- struct{}{}
	}
	go pass(server, client)
	go pass(client, server)
	<-both
	<-both
}

// register returns false if the server has changed in the meantime.
func (r *Relay) register(address string, conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.server != address {
		return false
	}
	for _, conn := range conns {
		r.open[conn] = true
	}
	return true
}

func (r *Relay) forget(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range conns {
		delete(r.open, conn)
	}
}
