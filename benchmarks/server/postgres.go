// Package server runs a PostgreSQL of the benchmark's own, so that nothing else writes to it, and
// what it writes can be told from the difference of its counters.
package server

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	_ "github.com/lib/pq" // driver "postgres"
)

// settings differ from PostgreSQL's defaults, except for fsync and synchronous_commit, which are
// named so that a reader sees them. With the default size of the WAL, a checkpoint would come in
// the middle of some runs. Those runs would also pay for the full pages that PostgreSQL writes
// after it. min_wal_size keeps files of the WAL for reuse.
var settings = []string{
	"fsync=on", "synchronous_commit=on", "shared_buffers=1GB", "max_connections=300",
	"max_wal_size=8GB", "min_wal_size=4GB", "checkpoint_timeout=1h", "listen_addresses=127.0.0.1",
}

// Postgres is a running server.
type Postgres struct {
	folder string
	more   []string // settings beside those of all servers
	port   int
	cmd    *exec.Cmd
	stop   io.Closer
	log    bytes.Buffer // read after the end of the server
}

// LogSettings are those of a server whose log can be read.
func LogSettings() []string { return []string{"wal_level=logical"} }

// Start makes a new cluster in a folder of its own and starts it on a free port, with more settings
// if they are given. Stop ends it.
func Start(ctx context.Context, more ...string) (*Postgres, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	p := &Postgres{more: more}
	if err := p.prepare(ctx, bin); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.folder))
	}
	if err := p.launch(bin); err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.folder))
	}
	if err := p.waitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// binaries returns the folder of initdb and postgres: Debian keeps it out of the PATH.
func binaries() (string, error) {
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin"); len(found) > 0 {
		return found[len(found)-1], nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errors.New("no initdb found: install PostgreSQL's server (Debian: postgresql), the benchmark starts one of its own")
	}
	return filepath.Dir(path), nil
}

// prepare makes the cluster.
func (p *Postgres) prepare(ctx context.Context, bin string) error {
	var err error
	if p.folder, err = os.MkdirTemp("", "postbox-bench-"); err != nil {
		return err
	}
	as, err := account()
	if err != nil {
		return err
	}
	if as != nil { // it must be able to reach its folder, which is its own
		if err := os.Chown(p.folder, int(as.Uid), int(as.Gid)); err != nil {
			return err
		}
	}
	initdb := command(ctx, as, filepath.Join(bin, "initdb"),
		"-D", p.data(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	return nil
}

func (p *Postgres) data() string { return filepath.Join(p.folder, "data") }

// account is who runs the server: PostgreSQL refuses root. Nil is whoever we are.
func account() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nobody else
	}
	postgres, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("as root the server runs as the user postgres: %w", err)
	}
	uid, err := strconv.ParseUint(postgres.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(postgres.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// command runs a program in a process group of its own, lest Ctrl-C reaches the server before us.
func command(ctx context.Context, as *syscall.Credential, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	return cmd
}

// keeper runs a server until its own input ends, however this process may end, and clears away what
// it leaves. A server is told to end at once: nobody needs the data, but shared memory shall go.
const keeper = `
folder=$1; shift
"$@" <&- & server=$!
cat >/dev/null
kill -QUIT $server; wait $server
rm -rf "$folder"`

// launch starts the server.
func (p *Postgres) launch(bin string) error {
	as, err := account()
	if err != nil {
		return err
	}
	if p.port, err = freePort(); err != nil {
		return err
	}
	args := []string{
		"-c", keeper, "keeper", p.folder, filepath.Join(bin, "postgres"),
		"-D", p.data(), "-p", strconv.Itoa(p.port), "-c", "unix_socket_directories=",
	}
	for _, setting := range slices.Concat(settings, p.more) {
		args = append(args, "-c", setting)
	}
	p.cmd = command(context.Background(), as, "/bin/sh", args...)
	if p.stop, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	return nil
}

func freePort() (int, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// startTimeout is what a slow disk may need.
const startTimeout = time.Minute

func (p *Postgres) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := sql.Open("postgres", p.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// Warm makes of a new server one that has been running: its memory is in use, and its WAL goes into
// files that are there. A new one touches a page of its memory for the first time, and fills a file
// of 16 MB with zeros, in the turn of whoever comes to it.
func (p *Postgres) Warm(ctx context.Context) error {
	const pages = 2 << 30 / (8 << 10) // twice its memory, one row each
	db, err := sql.Open("postgres", p.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		"CREATE TABLE warm (filler text)",
		"ALTER TABLE warm ALTER filler SET STORAGE PLAIN",
		fmt.Sprintf("INSERT INTO warm SELECT repeat('.', 8000) FROM generate_series(1, %d)", pages),
		"DROP TABLE warm",
		"CHECKPOINT",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

// DSN leads to the database that every cluster has.
func (p *Postgres) DSN() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// Settings tells how the server differs from PostgreSQL's defaults.
func Settings() []string { return settings }

// Stop ends the server and throws its data away.
func (p *Postgres) Stop() error {
	if err := p.stop.Close(); err != nil {
		return err
	}
	_ = p.cmd.Wait() // as it was told
	if _, err := os.Stat(p.folder); err == nil {
		return fmt.Errorf("folder %s stays behind\n%s", p.folder, p.log.Bytes())
	}
	return nil
}
