package amqpbroker_test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and RabbitMQ, and can lose the connection in several ways.
type proxy struct {
	uri      string
	dial     func() (net.Conn, error) // to RabbitMQ
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	down    bool // connections are closed at once
	deaf    bool // what the client sends is swallowed
	clients []net.Conn
	closers []func()
}

// newProxy starts a proxy in front of the real RabbitMQ.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	address, err := url.Parse(amqpURI(t))
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host, ctx := address.Host, t.Context()
	p := &proxy{listener: listener, dial: func() (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", host)
	}}
	address.Host = listener.Addr().String()
	p.uri = address.String()
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.setDown(true)
		p.running.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.connect(client)
	}
}

func (p *proxy) connect(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	broker, err := p.dial()
	if err != nil || p.down {
		_ = client.Close()
		return
	}
	closeBoth := func() {
		_ = client.Close()
		_ = broker.Close()
	}
	p.clients = append(p.clients, client)
	p.closers = append(p.closers, closeBoth)
	p.running.Go(func() {
		defer closeBoth()
		_, _ = io.Copy(client, broker)
	})
	p.running.Go(func() {
		defer closeBoth()
		_, _ = io.Copy(mouth{p, broker}, client)
	})
}

// mouth passes on what the client sends unless the proxy is deaf.
type mouth struct {
	proxy  *proxy
	broker io.Writer
}

func (m mouth) Write(data []byte) (int, error) {
	m.proxy.mu.Lock()
	deaf := m.proxy.deaf
	m.proxy.mu.Unlock()
	if deaf {
		return len(data), nil
	}
	return m.broker.Write(data)
}

// setDown closes all connections and refuses new ones, or lets them in again.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for _, closeBoth := range p.closers {
		closeBoth()
	}
	p.clients, p.closers = nil, nil
}

// setDeaf swallows what clients send, or passes it on again.
func (p *proxy) setDeaf(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
}

// inject sends bytes to the only client as if they came from the broker, which must be silent
// meanwhile.
func (p *proxy) inject(t *testing.T, data []byte) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.clients, 1)
	_, err := p.clients[0].Write(data)
	require.NoError(t, err)
}
