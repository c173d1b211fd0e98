package pipeline_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// loss is how a COMMIT goes wrong. The client cannot tell one from the other.
type loss string

const (
	noLoss     loss = ""
	answerLost loss = "the COMMIT arrives and its answer is lost"
	commitLost loss = "the COMMIT is lost"
)

// wire stands between a client and its database server, knows enough of the protocol to see a
// COMMIT pass, and cuts the connection there when it is told to, once.
type wire struct {
	server   string
	dialect  postbox.Dialect
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	next  loss
	cuts  int
	ended bool
	open  []net.Conn
}

// throughWire returns the database as reached through a wire.
func throughWire(t *testing.T, database *testdb.Database) (*testdb.Database, *wire) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{dialect: database.Dialect, listener: listener}
	reached := &testdb.Database{Dialect: database.Dialect, Driver: database.Driver}
	if database.Dialect == postbox.MySQL {
		config, err := mysql.ParseDSN(database.DSN)
		require.NoError(t, err)
		w.server, config.Addr = config.Addr, listener.Addr().String()
		reached.DSN = config.FormatDSN()
	} else {
		address, err := url.Parse(database.DSN)
		require.NoError(t, err)
		w.server, address.Host = address.Host, listener.Addr().String()
		reached.DSN = address.String()
	}
	w.running.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.end()
		w.running.Wait()
	})
	reached.DB = reached.Open(t) // closed before the wire is
	return reached, w
}

// cutNext has the next COMMIT go wrong.
func (w *wire) cutNext(how loss) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = how
}

// cut takes the order of cutNext, if there is one.
func (w *wire) cut() loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	how := w.next
	if how != noLoss {
		w.next = noLoss
		w.cuts++
	}
	return how
}

// done returns how many COMMITs went wrong.
func (w *wire) done() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server) //nolint:noctx // loopback
		if err != nil {
			_ = client.Close()
			continue
		}
		w.join(client, server)
	}
}

func (w *wire) join(client, server net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	closeBoth := func() {
		_ = client.Close()
		_ = server.Close()
	}
	if w.ended {
		closeBoth()
		return
	}
	w.open = append(w.open, client, server)
	swallow := make(chan struct{}) // closed: what the server says is for nobody
	w.running.Go(func() {
		defer closeBoth()
		w.up(client, server, swallow)
	})
	w.running.Go(func() {
		defer closeBoth()
		down(client, server, swallow)
	})
}

func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for _, conn := range w.open {
		_ = conn.Close()
	}
}

// up passes on what the client says, frame by frame.
func (w *wire) up(client io.Reader, server io.Writer, swallow chan struct{}) {
	for first := true; ; first = false {
		frame, statement, err := w.read(client, first)
		if err != nil {
			return
		}
		if strings.EqualFold(statement, "COMMIT") {
			switch w.cut() {
			case commitLost:
				return
			case answerLost:
				close(swallow)
			case noLoss:
			}
		}
		if _, err := server.Write(frame); err != nil {
			return
		}
	}
}

// down passes on what the server says. When that is an answer to be lost, the server has committed.
func down(client io.Writer, server io.Reader, swallow <-chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		select {
		case <-swallow:
			return
		default:
		}
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// read returns a frame, and the statement when it is a plain one.
func (w *wire) read(client io.Reader, first bool) (frame []byte, statement string, err error) {
	header := make([]byte, 5) // PostgreSQL: a letter for the type, then the length, which counts itself
	switch {
	case w.dialect == postbox.MySQL:
		header = header[:4] // three bytes for the length, one for the number of the frame
	case first:
		header = header[:4] // PostgreSQL's first frame has no type
	}
	if _, err := io.ReadFull(client, header); err != nil {
		return nil, "", err
	}
	var length int
	if w.dialect == postbox.MySQL {
		length = int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	} else {
		length = int(binary.BigEndian.Uint32(header[len(header)-4:])) - 4
	}
	frame = slices.Concat(header, make([]byte, length))
	body := frame[len(header):]
	if _, err := io.ReadFull(client, body); err != nil {
		return nil, "", err
	}
	switch {
	case w.dialect == postbox.MySQL && length > 0 && body[0] == 3: // COM_QUERY
		statement = string(body[1:])
	case w.dialect == postbox.PostgreSQL && !first && header[0] == 'Q':
		statement = strings.TrimRight(string(body), "\x00")
	}
	return frame, strings.Trim(statement, "; "), nil
}
