package drain

import (
	"context"
	"net"
	"sync"
	"time"
)

// listenPatience bounds the time to connect for LISTEN. Without it, a host that accepts a
// connection and never answers would block until the operating system gives up.
const listenPatience = 10 * time.Second

// listenDialer makes the connections of a listener. lib/pq holds the listener's lock while it
// connects, so its Close would wait for a host that does not answer. With this dialer the end of
// ctx closes the connection.
type listenDialer struct {
	ctx context.Context //nolint:containedctx // lib/pq has no context for its connections

	mu     sync.Mutex
	last   net.Conn
	forget func() bool // detaches ctx from the last connection
}

// DialContext connects, and sets the deadline by which lib/pq must have logged in. The context that
// lib/pq passes ends with a time-out only if the DSN sets one.
func (d *listenDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	deadline := time.Now().Add(listenPatience)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() //nolint:contextcheck // it is the context of the listener, which lib/pq does not pass on
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		_ = conn.Close()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forget != nil {
		d.forget() // detach the previous connection
	}
	d.last, d.forget = conn, context.AfterFunc(d.ctx, func() { _ = conn.Close() }) //nolint:contextcheck // as above
	return conn, nil
}

// Dial implements the interface of lib/pq for dialers without contexts.
func (d *listenDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(d.ctx, network, address)
}

// DialTimeout does so too.
func (d *listenDialer) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return d.DialContext(d.ctx, network, address)
}

// connected removes the deadline of the connection, which is idle until a notification arrives.
func (d *listenDialer) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.last.SetDeadline(time.Time{}) // an error means that the connection is already closed
}
