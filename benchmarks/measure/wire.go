package measure

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"

	"github.com/lib/pq"
)

// Wire counts what goes to PostgreSQL, by reading the protocol, so that it is the same for each
// driver and library.
type Wire struct {
	statements, roundTrips atomic.Int64
}

// Statements is how many there were so far.
func (w *Wire) Statements() int64 { return w.statements.Load() }

// Connector returns a connector of lib/pq whose traffic is counted.
func (w *Wire) Connector(dsn string) (driver.Connector, error) {
	connector, err := pq.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	connector.Dialer(dialer{w})
	return connector, nil
}

// Dial opens a connection whose traffic is counted: for drivers other than lib/pq.
func (w *Wire) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, wire: w}, nil
}

// dialer is Wire as lib/pq takes it.
type dialer struct{ wire *Wire }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.wire.Dial(context.Background(), network, address)
}

func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.wire.Dial(ctx, network, address)
}

// countedConn reads along what is written. One goroutine at a time writes to a connection of a
// database.
type countedConn struct {
	net.Conn
	wire *Wire

	wrote   atomic.Bool // since the last read
	started bool        // the first message, which has no type, is over
	header  []byte      // the beginning of a message, as far as it has come
	skip    int         // the rest of a message
}

// headerSize is that of a message's type and length; the length counts itself.
const (
	headerSize = 5
	lengthSize = 4
)

func (c *countedConn) Write(data []byte) (int, error) {
	c.parse(data)
	c.wrote.Store(true)
	return c.Conn.Write(data)
}

// Read after a write is the end of a way there, and the beginning of the way back.
func (c *countedConn) Read(data []byte) (int, error) {
	if c.wrote.CompareAndSwap(true, false) {
		c.wire.roundTrips.Add(1)
	}
	return c.Conn.Read(data)
}

func (c *countedConn) parse(data []byte) {
	if !c.started { // drivers send it in one piece
		c.started = true
		return
	}
	for len(data) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(data))
			c.skip -= n
			data = data[n:]
			continue
		}
		n := min(headerSize-len(c.header), len(data))
		c.header = append(c.header, data[:n]...)
		data = data[n:]
		if len(c.header) < headerSize {
			return
		}
		if c.header[0] == 'Q' || c.header[0] == 'E' { // a simple query, or the execution of a prepared one
			c.wire.statements.Add(1)
		}
		c.skip = int(binary.BigEndian.Uint32(c.header[1:])) - lengthSize
		c.header = c.header[:0]
	}
}
