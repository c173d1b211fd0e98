package pgtail_test

import (
	"net"
	"net/url"
	"sync"

	"github.com/stretchr/testify/require"
)

// valve stands between a process of the model and the server. When it is shut, the server sees what
// it sees of a process that was killed: all connections end, and nothing follows. When it is held,
// it sees a process that does not run, and goes on later with what it had in mind.
type valve struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	moved *sync.Cond // held or shut has changed
	held  bool
	shut  bool
	open  []net.Conn
}

// newValve returns a valve before the server of the test, and the address that leads through it.
func (w *world) newValve() (v *valve, dsn string) {
	w.Helper()
	address, err := url.Parse(w.DSN)
	require.NoError(w, err)
	listener, err := new(net.ListenConfig).Listen(w.Context(), "tcp", "127.0.0.1:0")
	require.NoError(w, err)
	v = &valve{server: address.Host, listener: listener}
	v.moved = sync.NewCond(&v.mu)
	address.Host = listener.Addr().String()
	v.running.Go(v.accept)
	return v, address.String()
}

// hold stops everything that passes, or lets it go on.
func (v *valve) hold(held bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = held
	v.moved.Broadcast()
}

// end ends all connections, and refuses new ones.
func (v *valve) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = true
	_ = v.listener.Close()
	for _, conn := range v.open {
		_ = conn.Close()
	}
	v.moved.Broadcast()
}

// close ends everything, and waits for that.
func (v *valve) close() {
	v.end()
	v.running.Wait()
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
		if !v.register(client, server) {
			_, _ = client.Close(), server.Close()
			return
		}
		v.running.Go(func() { v.pass(server, client) })
		v.running.Go(func() { v.pass(client, server) })
	}
}

// register returns false if the valve is shut.
func (v *valve) register(conns ...net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shut {
		return false
	}
	v.open = append(v.open, conns...)
	return true
}

// pass copies data from one connection to the other. When one of them ends, it closes both.
func (v *valve) pass(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !v.lets() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// lets waits while the valve is held. It returns false if it is shut.
func (v *valve) lets() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.held && !v.shut {
		v.moved.Wait()
	}
	return !v.shut
}
