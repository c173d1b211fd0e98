package testcluster

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/lib/pq" // driver "postgres"
)

// standbys is how many a PostgreSQL primary has.
const standbys = 2

// Postgres is a primary with two streaming standbys. fsync is on. Only one goroutine may use it at
// a time, apart from the addresses and the relay.
type Postgres struct {
	// Relay leads to the primary. Stop, Promote and Restore leave it alone: move it when the
	// clients shall follow.
	Relay *Relay

	work    *workspace
	bin     string
	nodes   []*node
	primary *node
}

// node is one server of a cluster, primary or standby.
type node struct {
	name   string
	port   int
	server *server // nil while it is stopped
}

// binVariable names the folder of the binaries of PostgreSQL. scripts/services sets it if it was
// told which version to run.
const binVariable = "TEST_POSTGRES_BIN"

// settingsVariable holds settings of the servers, one a line. scripts/services sets it to those
// that POSTBOX_SERVICES_SETTINGS names.
const settingsVariable = "TEST_POSTGRES_SETTINGS"

// postgresBin returns the folder of the newest PostgreSQL, as scripts/services finds it.
func postgresBin() (string, error) {
	if chosen := os.Getenv(binVariable); chosen != "" {
		return chosen, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well formed
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Compare(postgresVersion(a), postgresVersion(b))
	})
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("%w: no PostgreSQL binaries: %w", ErrUnavailable, err)
	}
	return filepath.Dir(initdb), nil
}

// postgresVersion reads it from a path such as /usr/lib/postgresql/15/bin/initdb.
func postgresVersion(initdb string) float64 {
	version, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(initdb))), 64) // 0 is the oldest
	return version
}

// PostgresAvailable returns nil if [StartPostgres] can work on this machine, else an
// [ErrUnavailable] with the reason.
func PostgresAvailable() error {
	bin, err := postgresBin()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(bin, "postgres")); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// StartPostgres makes and starts a cluster, in some seconds. The relay leads to its primary. The
// caller has to Close it.
func StartPostgres(ctx context.Context) (*Postgres, error) { return startPostgres(ctx, standbys) }

// StartPostgresAlone is StartPostgres without standbys: Stop and Start let the server crash and
// come back.
func StartPostgresAlone(ctx context.Context) (*Postgres, error) { return startPostgres(ctx, 0) }

func startPostgres(ctx context.Context, standbys int) (_ *Postgres, err error) {
	if err := PostgresAvailable(); err != nil {
		return nil, err
	}
	p := &Postgres{}
	if p.bin, err = postgresBin(); err != nil {
		return nil, err
	}
	if p.work, err = newWorkspace("postgres"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.Relay, err = NewRelay(); err != nil {
		return nil, err
	}
	ports, err := freePorts(1 + standbys)
	if err != nil {
		return nil, err
	}
	for n, port := range ports {
		p.nodes = append(p.nodes, &node{name: fmt.Sprintf("server%d", n+1), port: port})
	}
	p.primary = p.nodes[0]
	err = p.work.run(p.binary("initdb"), "-D", p.data(p.primary), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	p.Relay.Move(p.Address())
	return p, p.Rebuild(ctx)
}

// Close stops all servers and removes their data.
func (p *Postgres) Close() error {
	var problems []error
	for _, n := range p.nodes {
		problems = append(problems, p.stop(n, true))
	}
	if p.Relay != nil {
		p.Relay.Close()
	}
	return errors.Join(append(problems, p.work.close())...)
}

// DSN reaches a database of the primary through the relay.
func (p *Postgres) DSN(database string) string { return dsn(p.Relay.Address(), database) }

// Address is that of the primary itself.
func (p *Postgres) Address() string { return local(p.primary.port) }

// StandbyAddress is that of a standby. It answers, and takes no writes.
func (p *Postgres) StandbyAddress() string {
	return local(p.nodes[slices.IndexFunc(p.nodes, func(n *node) bool { return n != p.primary && n.server != nil })].port)
}

// PrimaryDSN reaches a database of the primary past the relay.
func (p *Postgres) PrimaryDSN(database string) string { return dsn(p.Address(), database) }

func dsn(address, database string) string {
	return "postgres://postgres@" + address + "/" + database + "?sslmode=disable&connect_timeout=5"
}

func (p *Postgres) binary(name string) string { return filepath.Join(p.bin, name) }

func (p *Postgres) data(n *node) string { return p.work.path(n.name) }

// Stop stops the primary: in order, or like a crash.
func (p *Postgres) Stop(immediate bool) error { return p.stop(p.primary, immediate) }

func (p *Postgres) stop(n *node, immediate bool) error {
	if n.server == nil {
		return nil
	}
	how := syscall.SIGINT // a fast shutdown
	if immediate {
		how = syscall.SIGQUIT
	}
	err := n.server.stop(how)
	n.server = nil
	return err
}

// Start starts the primary with the data that it has, and returns when it answers.
func (p *Postgres) Start(ctx context.Context) error { return p.start(ctx, p.primary) }

func (p *Postgres) start(ctx context.Context, n *node) (err error) {
	args := []string{
		"-D", p.data(n), "-p", strconv.Itoa(n.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + p.work.folder, "-c", "max_connections=200",
		"-c", "wal_level=logical", "-c", "max_wal_senders=10", "-c", "hot_standby=on", "-c", "wal_keep_size=64MB",
		"-c", "max_wal_size=256MB", "-c", "wal_retrieve_retry_interval=100ms",
	}
	for setting := range strings.Lines(os.Getenv(settingsVariable)) {
		setting = strings.Replace(setting, "=serializable", "=repeatable read", 1) // a standby serves none
		args = append(args, "-c", strings.TrimSpace(setting))
	}
	n.server, err = p.work.serve(n.name, p.binary("postgres"), args...)
	if err != nil {
		return err
	}
	return n.server.ready(ctx, func(ctx context.Context) error { return p.exec(ctx, n, "SELECT 1") })
}

// Rebuild makes each server but the primary a standby of the primary, with a fresh copy of its
// data.
func (p *Postgres) Rebuild(ctx context.Context) error {
	for _, n := range p.nodes {
		if n == p.primary {
			continue
		}
		if err := p.stop(n, true); err != nil {
			return err
		}
		if err := p.copyTo(p.data(n)); err != nil {
			return err
		}
		conninfo := fmt.Sprintf("primary_conninfo = '%s'\n", p.conninfo(n))
		if err := p.work.append(filepath.Join(p.data(n), "postgresql.auto.conf"), conninfo); err != nil {
			return err
		}
		if err := p.work.append(filepath.Join(p.data(n), "standby.signal"), ""); err != nil {
			return err
		}
		if err := p.start(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// conninfo leads a standby to the primary, which sees it under its name.
func (p *Postgres) conninfo(n *node) string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", p.primary.port, n.name)
}

// append writes to the end of a file that the servers' user owns.
func (w *workspace) append(file, text string) error {
	to, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // our folder
	if err != nil {
		return err
	}
	_, err = to.WriteString(text)
	return errors.Join(err, to.Close(), w.own(file))
}

// ask runs a query of one value at a server, past the relay.
func ask[T any](ctx context.Context, p *Postgres, n *node, query string) (value T, err error) { //nolint:unparam // it is one of the methods of a server
	db, err := sql.Open("postgres", dsn(local(n.port), "postgres"))
	if err != nil {
		return value, err
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRowContext(ctx, query).Scan(&value)
	if err != nil {
		err = fmt.Errorf("%s: %s: %w", n.name, query, err)
	}
	return value, err
}

// exec runs statements at a server, each by itself, past the relay.
func (p *Postgres) exec(ctx context.Context, n *node, statements ...string) error {
	db, err := sql.Open("postgres", dsn(local(n.port), "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", n.name, statement, err)
		}
	}
	return nil
}
