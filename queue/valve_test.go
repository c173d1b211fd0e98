package queue_test

import (
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// valve stands between a client and its database server. While it is shut there is no connection.
type valve struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup
	refused  atomic.Int32 // connections

	mu     sync.Mutex
	closed bool
	open   []net.Conn
}

// throughValve returns a handle on the database that goes through a valve.
func throughValve(t *testing.T, database *testdb.Database) (*sql.DB, *valve) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v := &valve{listener: listener}
	reached := *database
	if database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(database.DSN)
		require.NoError(t, err)
		v.server, config.Addr = config.Addr, listener.Addr().String()
		reached.DSN = config.FormatDSN()
	} else {
		address, err := url.Parse(database.DSN)
		require.NoError(t, err)
		v.server, address.Host = address.Host, listener.Addr().String()
		reached.DSN = address.String()
	}
	v.running.Go(v.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		v.shut(true)
		v.running.Wait()
	})
	return reached.Open(t), v
}

// shut ends all connections and refuses new ones, until it is opened again.
func (v *valve) shut(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = shut
	if shut {
		for _, conn := range v.open {
			_ = conn.Close()
		}
		v.open = nil
	}
}

func (v *valve) accept() {
	for {
		client, err := v.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", v.server) //nolint:noctx // loopback
		if err != nil {
			_ = client.Close()
			continue
		}
		v.join(client, server)
	}
}

func (v *valve) join(client, server net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		v.refused.Add(1)
		_ = client.Close()
		_ = server.Close()
		return
	}
	v.open = append(v.open, client, server)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		v.running.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
}
