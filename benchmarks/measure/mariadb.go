package measure

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/postbox-go/watermill-postbox/benchmarks/server"
)

// MariaDBVariable names the server on which [MariaDB] works.
const MariaDBVariable = "TEST_MYSQL_DSN"

// MariaDB is how contenders reach MariaDB.
type MariaDB struct {
	// Interpolate lets the driver put arguments into the text of a statement that is not prepared,
	// which saves a round trip.
	Interpolate bool
}

// Run gives a contender an empty database on MariaDB. Statements and log are counted by that
// server, to which no other program may write meanwhile.
func (m MariaDB) Run(run func(ctx context.Context, stage *Stage, db *sql.DB) error) Run {
	return func(ctx context.Context, stage *Stage) (err error) {
		config, err := mysql.ParseDSN(os.Getenv(MariaDBVariable))
		if err != nil {
			return err
		}
		if stage.mariaDB, err = sql.Open("mysql", config.FormatDSN()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stage.mariaDB.Close()) }()
		config.DBName = fmt.Sprintf("bench_%d", os.Getpid())
		config.ParseTime = true // which Watermill's subscriber wants
		config.InterpolateParams = m.Interpolate
		if _, err := stage.mariaDB.ExecContext(ctx, "CREATE DATABASE "+config.DBName); err != nil {
			return err
		}
		defer func() {
			_, dropErr := stage.mariaDB.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+config.DBName) //nolint:gosec // the name is our own
			err = errors.Join(err, dropErr)
		}()
		return stage.onMariaDB(ctx, config, run)
	}
}

// mariaDBClients are more than any contender has at a time, and all connections are kept.
const mariaDBClients = 128

// onMariaDB runs a contender on its database, and counts what it did.
func (s *Stage) onMariaDB(ctx context.Context, config *mysql.Config, run func(context.Context, *Stage, *sql.DB) error) error {
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(mariaDBClients)
	db.SetMaxIdleConns(mariaDBClients)
	if err := errors.Join(run(ctx, s, db), db.Close()); err != nil || s.sample.Messages == 0 {
		return err
	}
	after, err := s.readMariaDB(ctx)
	n := float64(s.sample.Messages)
	s.Record(Statements, float64(after.statements-s.before.statements)/n)
	s.Record(WAL, float64(after.wal-s.before.wal)/n)
	return err
}

// readMariaDB reads the counters of MariaDB: statements, without those that prepare others, the
// bytes of InnoDB's log, and the server's processor time if it runs on this machine.
func (s *Stage) readMariaDB(ctx context.Context) (now counters, err error) {
	const status = `SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Innodb_os_log_written')`
	rows, err := s.mariaDB.QueryContext(ctx, status)
	if err != nil {
		return now, fmt.Errorf("read the counters of MariaDB: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return now, err
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return now, err
		}
		if name == "Questions" {
			now.statements = n
		} else {
			now.wal = n
		}
	}
	now.readOwn()
	if err := rows.Err(); err != nil {
		return now, err
	}
	var pidFile string
	if err := s.mariaDB.QueryRowContext(ctx, `SELECT @@pid_file`).Scan(&pidFile); err != nil {
		return now, fmt.Errorf("ask MariaDB for its process: %w", err)
	}
	now.serverCPU = server.CPUOf(pidFile)
	return now, nil
}
