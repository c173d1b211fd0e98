package testdb

import (
	"bytes"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pooler is a PgBouncer in transaction mode in front of a database on PostgreSQL. It ends with the test.
type Pooler struct {
	// Schema is where the tables of the test go: PgBouncer does not take search_path from an address.
	Schema string
	dsn    *url.URL
}

// StartPooler starts a PgBouncer in front of the database, or skips the test where there is none. It has few connections, so that each statement
// soon gets another one.
func StartPooler(tb testing.TB, database *Database) *Pooler {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		tb.Skip("PgBouncer is missing: on Debian, apt-get install pgbouncer")
	}
	behind, err := url.Parse(database.DSN)
	require.NoError(tb, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	address := listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	require.NoError(tb, listener.Close())

	folder, err := os.MkdirTemp("", "pgbouncer")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, "pgbouncer.ini")
	require.NoError(tb, os.Chmod(folder, 0o755)) //nolint:gosec // it runs as another user
	require.NoError(tb, os.WriteFile(file, fmt.Appendf(nil, `[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
`, behind.Hostname(), behind.Port(), behind.User.Username(), address.Port), 0o644)) //nolint:gosec // nothing in it is secret
	args := []string{"-q", file}
	if os.Getuid() == 0 { // it refuses to run as root
		args = []string{"-q", "-u", "nobody", file}
	}
	var said bytes.Buffer
	command := exec.CommandContext(tb.Context(), program, args...) //nolint:gosec // of this test
	command.Stdout, command.Stderr = &said, &said
	require.NoError(tb, command.Start())
	tb.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if tb.Failed() {
			tb.Logf("PgBouncer said: %s", said.String())
		}
	})
	pooler := &Pooler{
		Schema: behind.Query().Get("search_path"),
		dsn:    &url.URL{Scheme: "postgres", User: behind.User, Host: address.String(), Path: behind.Path},
	}
	db := pooler.Open(tb, "postgres", "binary_parameters=yes")
	require.Eventually(tb, func() bool { return db.PingContext(tb.Context()) == nil }, 20*time.Second, 20*time.Millisecond)
	return pooler
}

// Open returns a handle on the database through the pooler.
func (p *Pooler) Open(tb testing.TB, driver, options string) *sql.DB {
	tb.Helper()
	dsn := *p.dsn
	dsn.RawQuery = "sslmode=disable&" + options
	db, err := sql.Open(driver, dsn.String())
	require.NoError(tb, err)
	db.SetMaxOpenConns(16)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}
