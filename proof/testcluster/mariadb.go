package testcluster

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/go-sql-driver/mysql"
)

// MariaDB is a primary with one replica that follows it asynchronously. Both write their logs to
// the disk with each commit. Only one goroutine may use it at a time, apart from the addresses and
// the relay.
type MariaDB struct {
	// Relay leads to the primary. Stop and Promote leave it alone: move it when the clients shall
	// follow.
	Relay *Relay

	work             *workspace
	primary, replica *node
}

// mariaPrograms are what a pair needs.
var mariaPrograms = []string{"mariadbd", "mariadb-install-db"}

// MariaDBAvailable returns nil if [StartMariaDB] can work on this machine, else an [ErrUnavailable]
// with the reason.
func MariaDBAvailable() error {
	for _, name := range mariaPrograms {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	return nil
}

// StartMariaDB makes and starts both servers, in some seconds. The relay leads to the primary. The
// caller has to Close it.
func StartMariaDB(ctx context.Context) (_ *MariaDB, err error) {
	if err := MariaDBAvailable(); err != nil {
		return nil, err
	}
	m := &MariaDB{}
	if m.work, err = newWorkspace("mysql"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.Relay, err = NewRelay(); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	m.primary, m.replica = &node{name: "server1", port: ports[0]}, &node{name: "server2", port: ports[1]}
	for id, n := range []*node{m.primary, m.replica} {
		if err := m.install(n); err != nil {
			return nil, err
		}
		if err := m.start(ctx, n, id+1); err != nil {
			return nil, err
		}
	}
	err = m.exec(ctx, m.replica, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='postbox', "+
		"MASTER_PASSWORD='postbox', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1", m.primary.port), "START SLAVE")
	m.Relay.Move(m.Address())
	return m, err
}

// accounts are made on both servers, each for itself.
const accounts = `SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'postbox'@'%' IDENTIFIED BY 'postbox';
GRANT ALL PRIVILEGES ON *.* TO 'postbox'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS postbox;
`

// temporary is the folder of a server for its temporary tables. No two servers may share one: a
// server that starts removes the temporary tables that it finds there, and the other one, which may
// be installing its system tables, fails.
func (m *MariaDB) temporary(n *node) string { return m.work.path(n.name + ".tmp") }

func (m *MariaDB) install(n *node) error {
	if err := m.work.mkdir(m.temporary(n)); err != nil {
		return err
	}
	data := m.work.path(n.name)
	err := m.work.run("mariadb-install-db", "--no-defaults", "--datadir="+data, "--tmpdir="+m.temporary(n), "--skip-test-db",
		"--auth-root-authentication-method=normal")
	if err != nil {
		return err
	}
	return m.work.append(data+".sql", accounts)
}

func (m *MariaDB) start(ctx context.Context, n *node, id int, more ...string) (err error) {
	data := m.work.path(n.name)
	arguments := []string{
		"--no-defaults", "--datadir=" + data, "--init-file=" + data + ".sql", "--skip-slave-start",
		"--socket=" + data + ".socket", "--pid-file=" + data + ".own", "--tmpdir=" + m.temporary(n), "--skip-networking=0",
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(n.port), "--skip-name-resolve", "--max-connections=200",
		"--max-allowed-packet=64M", "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci",
		"--server-id=" + strconv.Itoa(id), "--log-bin=binlog", "--binlog-format=ROW", "--log-slave-updates", "--sync-binlog=1",
	}
	n.server, err = m.work.serve(n.name, "mariadbd", append(arguments, more...)...)
	if err != nil {
		return err
	}
	return n.server.ready(ctx, func(ctx context.Context) error { return m.exec(ctx, n, "SELECT 1") })
}

// Close stops both servers and removes their data.
func (m *MariaDB) Close() error {
	var problems []error
	for _, n := range []*node{m.primary, m.replica} {
		problems = append(problems, stopAtOnce(n))
	}
	if m.Relay != nil {
		m.Relay.Close()
	}
	return errors.Join(append(problems, m.work.close())...)
}

func stopAtOnce(n *node) error {
	if n == nil || n.server == nil {
		return nil
	}
	err := n.server.stop(syscall.SIGKILL)
	n.server = nil
	return err
}

// DSN reaches a database of the primary through the relay.
func (m *MariaDB) DSN(database string) string { return MariaDSN(m.Relay.Address(), database) }

// Address is that of the primary itself.
func (m *MariaDB) Address() string { return local(m.primary.port) }

// MariaDSN reaches a database at an address, such as that of a relay.
func MariaDSN(address, database string) string {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "postbox", "postbox", "tcp", address, database
	return config.FormatDSN()
}

// Sever waits until the replica has all that the primary has committed so far, and then cuts it
// off: a failover loses whatever the primary confirms from then on.
func (m *MariaDB) Sever(ctx context.Context) error {
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	return m.exec(ctx, m.replica, "STOP SLAVE IO_THREAD")
}

// catchUp waits until the replica has what the primary has committed.
func (m *MariaDB) catchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	var position string
	if err := m.ask(ctx, m.primary, &position, "SELECT @@gtid_binlog_pos"); err != nil {
		return err
	}
	var timeout int
	query := fmt.Sprintf("SELECT MASTER_GTID_WAIT('%s', %d)", position, int(answerDeadline.Seconds()))
	if err := m.ask(ctx, m.replica, &timeout, query); err != nil {
		return err
	}
	if timeout != 0 {
		return errors.New("the replica does not catch up")
	}
	return nil
}

// Stop ends the primary like a crash.
func (m *MariaDB) Stop() error { return stopAtOnce(m.primary) }

// Restart starts the primary, which must have been stopped, with the data that it has.
func (m *MariaDB) Restart(ctx context.Context) error { return m.start(ctx, m.primary, 1) }

// Promote makes the replica the primary. The old one must have been stopped, and is gone for good.
func (m *MariaDB) Promote(ctx context.Context) error {
	if m.primary.server != nil {
		return errors.New("the old primary still runs, and two of them would both take writes")
	}
	if err := m.exec(ctx, m.replica, "STOP SLAVE", "RESET SLAVE ALL"); err != nil {
		return err
	}
	m.primary, m.replica = m.replica, nil
	return nil
}

// Backup makes a backup of the replica's data, as they are once it has everything that the primary
// has committed so far. The primary goes on; the replica is stopped for good.
func (m *MariaDB) Backup(ctx context.Context) error {
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	err := m.replica.server.stop(syscall.SIGTERM) // in order, so that its files can be used as they are
	m.replica.server = nil
	return err
}

// Restore replaces the data of the primary, which must have been stopped, with those of
// [MariaDB.Backup], and starts it at the address that it had. There is no replica afterwards.
func (m *MariaDB) Restore(ctx context.Context) error {
	if m.primary.server != nil {
		return errors.New("the primary still runs")
	}
	const id = 1 // as before
	m.primary.name, m.replica = m.replica.name, nil
	return m.start(ctx, m.primary, id)
}

// ask runs a query of one value at a server, past the relay.
func (m *MariaDB) ask(ctx context.Context, n *node, value any, query string) error {
	return m.askRow(ctx, n, query, value)
}

// askRow runs a query of one row at a server, past the relay.
func (m *MariaDB) askRow(ctx context.Context, n *node, query string, values ...any) error {
	db, err := sql.Open("mysql", MariaDSN(local(n.port), ""))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(ctx, query).Scan(values...); err != nil {
		return fmt.Errorf("%s: %s: %w", n.name, query, err)
	}
	return nil
}

// exec runs statements at a server, each by itself, past the relay.
func (m *MariaDB) exec(ctx context.Context, n *node, statements ...string) error {
	db, err := sql.Open("mysql", MariaDSN(local(n.port), ""))
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
