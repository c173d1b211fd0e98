package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/go-sql-driver/mysql"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// mariaDBVariable names the server.
const mariaDBVariable = "TEST_MYSQL_DSN"

// inMariaDB gives a contender an empty database on MariaDB.
func inMariaDB(run func(ctx context.Context, stage *measure.Stage, db *sql.DB) error) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) (err error) {
		config, err := mysql.ParseDSN(os.Getenv(mariaDBVariable))
		if err != nil {
			return err
		}
		server, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		config.DBName = fmt.Sprintf("bench_%d", os.Getpid())
		if _, err := server.ExecContext(ctx, "CREATE DATABASE "+config.DBName); err != nil {
			return err
		}
		defer func() {
			_, dropErr := server.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+config.DBName) //nolint:gosec // the name is our own
			err = errors.Join(err, dropErr)
		}()
		db, err := sql.Open("mysql", config.FormatDSN())
		if err != nil {
			return err
		}
		const connections = 32 // more than are used at a time, and all are kept
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		defer func() { err = errors.Join(err, db.Close()) }()
		return run(ctx, stage, db)
	}
}
