package testdb

import (
	"context"
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Network stands between a handle and its server.
type Network struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	links []*link
}

// link is one connection through the network.
type link struct {
	client, server net.Conn

	mu     sync.Mutex
	silent bool
}

// OpenThroughNetwork returns a handle on the database, and the network that lies between the two.
func (d *Database) OpenThroughNetwork(tb testing.TB) (*sql.DB, *Network) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	n := &Network{listener: listener}
	through := *d
	if d.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(d.DSN)
		require.NoError(tb, err)
		n.server, config.Addr = config.Addr, listener.Addr().String()
		through.DSN = config.FormatDSN()
	} else {
		address, err := url.Parse(d.DSN)
		require.NoError(tb, err)
		n.server, address.Host = address.Host, listener.Addr().String()
		through.DSN = address.String()
	}
	n.running.Go(n.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		n.mu.Lock()
		for _, l := range n.links {
			l.close()
		}
		n.mu.Unlock()
		n.running.Wait()
	})
	return through.Open(tb), n
}

// Silence makes the connections of now silent for ever, as when the machine of the server has gone without a word. New
// ones work.
func (n *Network) Silence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
	}
}

func (n *Network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", n.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{client: client, server: server}
		n.mu.Lock()
		n.links = append(n.links, l)
		n.mu.Unlock()
		n.running.Go(func() { l.carry(server, client) })
		n.running.Go(func() { l.carry(client, server) })
	}
}

// carry copies what one side sends, and drops it while the link is silent.
func (l *link) carry(to io.Writer, from io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		silent := l.silent
		l.mu.Unlock()
		if silent {
			if err != nil {
				return // the other side does not hear of it
			}
			continue
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				l.close()
				return
			}
		}
		if err != nil {
			l.close()
			return
		}
	}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}
