package drain

import (
	"context"
	"net"
	"sync"
	"time"
)

// listenPatience is how long it may take to connect for LISTEN. Without it a host that takes a connection and answers nothing would be waited for until the
// operating system gives up.
const listenPatience = 10 * time.Second

// listenDialer makes the connections of a listener. lib/pq holds the listener's lock while it connects, so that its Close would wait for a host that does not answer.
// Here the end of ctx closes the connection.
type listenDialer struct {
	ctx context.Context //nolint:containedctx // lib/pq has none for its connections

	mu     sync.Mutex
	last   net.Conn
	forget func() bool // lets ctx forget the last connection
}

// DialContext connects, and sets the deadline until which lib/pq must have logged in. The context that lib/pq gives ends with a time-out in the DSN only.
func (d *listenDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	deadline := time.Now().Add(listenPatience)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)() //nolint:contextcheck // it is the context of the listener, which lib/pq does not hand on
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
		d.forget() // the one before it
	}
	d.last, d.forget = conn, context.AfterFunc(d.ctx, func() { _ = conn.Close() }) //nolint:contextcheck // as above
	return conn, nil
}

// Dial is what lib/pq asks of a dialer that knows no contexts.
func (d *listenDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(d.ctx, network, address)
}

// DialTimeout is as well.
func (d *listenDialer) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return d.DialContext(d.ctx, network, address)
}

// connected takes the deadline from the connection, which has nothing to do until there is a notification.
func (d *listenDialer) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.last.SetDeadline(time.Time{}) // an error is that of a connection that is gone already
}
