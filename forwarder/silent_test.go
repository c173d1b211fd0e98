package forwarder_test

import (
	"context"
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// patientDialer makes connections on which no read and no write waits for longer than patience.
type patientDialer struct {
	net.Dialer

	patience time.Duration
}

func (d *patientDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, address)
	return patientConn{conn, d.patience}, err
}

// lib/pq asks for DialTimeout, and calls DialContext.
func (d *patientDialer) DialTimeout(network, address string, _ time.Duration) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

type patientConn struct {
	net.Conn

	patience time.Duration
}

func (c patientConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.patience))
	return c.Conn.Read(p)
}

func (c patientConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.patience))
	return c.Conn.Write(p)
}

func openPatiently(dsn string, patience time.Duration) (*sql.DB, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(&patientDialer{patience: patience})
	return sql.OpenDB(connector), nil
}

// lib/pq reads on when the context of a statement ends. With a dialer as in docs/databases.md the
// forwarder goes on, and ends.
func TestForwarder_goes_on_after_a_silent_network_with_lib_pq(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t).Migrate(t)
	network := newSilence(t, database)
	db, err := openPatiently(network.dsn, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(2)
	to := &broker{}
	fwd, err := forwarder.New(database.On(db), to, forwarder.Config{Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond}}, nil)
	require.NoError(t, err)
	run(t, fwd) // which wants it to end
	publisher := publisherFor(t, database, nil)
	inTx(t, database.DB, publisher, "orders", newMessage("before", ""))
	eventually(t, func() bool { return len(to.ids()) == 1 }, "the network works")

	network.fall()
	inTx(t, database.DB, publisher, "orders", newMessage("after", ""))
	select {
	case <-network.cut:
	case <-time.After(patience):
		t.Fatal("no answer was cut off")
	}
	eventually(t, func() bool { return len(to.ids()) == 2 && pending(t, database) == 0 }, "it goes on with other connections")

	network.fall()
	require.NoError(t, fwd.Close())
}

// silence passes connections on to a server until it falls silent: then half of an answer comes
// through on each connection that is open, and nothing more. New ones work.
type silence struct {
	dsn string
	cut chan struct{} // has an answer that was cut off

	mu     sync.Mutex
	silent chan struct{} // is closed for the connections that are open
}

func newSilence(t *testing.T, database *testdb.Database) *silence {
	t.Helper()
	address, err := url.Parse(database.DSN)
	require.NoError(t, err)
	server := address.Host
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address.Host = listener.Addr().String()
	s := &silence{dsn: address.String(), cut: make(chan struct{}, 1), silent: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.pass(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait() // until the clients have closed all connections
	})
	return s
}

// fall makes the connections that are open silent.
func (s *silence) fall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.silent)
	s.silent = make(chan struct{})
}

func (s *silence) pass(client net.Conn, address string) {
	s.mu.Lock()
	silent := s.silent
	s.mu.Unlock()
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", address) //nolint:noctx // loopback
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close() // the client has gone
	}()
	answer := make([]byte, 1<<16)
	for {
		n, err := server.Read(answer)
		if err != nil {
			return
		}
		select {
		case <-silent:
			_, _ = client.Write(answer[:n/2])
			select {
			case s.cut <- struct{}{}:
			default:
			}
			_, _ = io.Copy(io.Discard, server) // until the client has gone
			return
		default:
			if _, err := client.Write(answer[:n]); err != nil {
				return
			}
		}
	}
}
