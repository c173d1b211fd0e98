package driver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
	"github.com/postbox-go/watermill-postbox/proof/torture/ledger"
	"github.com/postbox-go/watermill-postbox/proof/torture/role"
	"github.com/postbox-go/watermill-postbox/proof/torture/schedule"
	"github.com/postbox-go/watermill-postbox/proof/torture/skew"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// program is this program, as go build knows it.
const program = "github.com/postbox-go/watermill-postbox/proof/torture"

// names of the drivers, of which the processes of a role take turns.
var drivers = []string{"postgres", "pgx"}

// prepare makes everything that the processes find when they start.
func (r *run) prepare(ctx context.Context) error {
	if os.Getenv("POSTBOX_SERVICES_CONTROL") == "" {
		return errors.New("nothing here can stop and start the services: run it through scripts/services, as make torture does")
	}
	r.logs = filepath.Join(r.folder, "logs")
	r.direct = role.Config{
		AMQP: os.Getenv("TEST_AMQP_URI"), Kafka: os.Getenv("TEST_KAFKA_BROKERS"),
		Histories: filepath.Join(r.folder, "histories"), Marks: filepath.Join(r.folder, "marks"),
	}
	for _, folder := range []string{r.logs, r.direct.Histories, r.direct.Marks} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
	}
	var err error
	if r.binary, err = r.build(ctx); err != nil {
		return err
	}
	if r.history, err = history.NewWriter(r.direct.Histories, "driver/1"); err != nil {
		return err
	}
	if err := r.prepareDatabase(ctx); err != nil {
		return err
	}
	return r.direct.Prepare()
}

// build returns the binary of the processes: one with clocks that can be set off, if that is to
// happen.
func (r *run) build(ctx context.Context) (string, error) {
	if !slices.Contains(r.Kinds, schedule.Clock) && !slices.Contains(r.Kinds, schedule.Suspend) {
		return os.Executable()
	}
	r.say("building with clocks that can be set off: the first time takes a while")
	return skew.Build(ctx, r.folder, program)
}

// prepareDatabase makes a database with all tables.
func (r *run) prepareDatabase(ctx context.Context) error {
	server := os.Getenv("TEST_POSTGRES_DSN")
	if r.cluster != nil {
		server = r.cluster.DSN("postgres")
	}
	if server == "" || r.direct.AMQP == "" || r.direct.Kafka == "" {
		return errors.New("PostgreSQL, RabbitMQ and Kafka are needed: run it through scripts/services, as make torture does")
	}
	r.databaseName = fmt.Sprintf("torture_%d", os.Getpid())
	if err := createDatabase(ctx, server, r.databaseName); err != nil {
		return err
	}
	var err error
	if r.database, err = dataSource(server, "", r.databaseName, ledger.DriverName); err != nil {
		return err
	}
	if r.db, err = sql.Open("postgres", r.database); err != nil {
		return err
	}
	database := postbox.Database{DB: r.db, Dialect: postbox.PostgreSQL}
	if err := postbox.Migrate(ctx, database); err != nil {
		return err
	}
	if err := pgtail.Setup(ctx, database, ""); err != nil {
		return err
	}
	if err := ledger.Create(ctx, r.db); err != nil {
		return err
	}
	return ledger.AddStaleClaims(ctx, r.db)
}

func createDatabase(ctx context.Context, server, name string) error {
	db, err := sql.Open("postgres", server)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE DATABASE "+name)
	return err
}

// dataSource returns the DSN of a server with another address, if any, and another database.
func dataSource(server, address, database, application string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	if address != "" {
		u.Host = address
	}
	u.Path = "/" + database
	query := u.Query()
	query.Set("connect_timeout", "5")
	query.Set("application_name", application)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// configure gives a process its wires.
func (r *run) configure(as role.Role, number int) (role.Config, error) {
	config := r.direct
	config.Name, config.Role = fmt.Sprintf("%s-%d", as, number), as
	config.Driver = drivers[(number-1)%len(drivers)]
	own, err := url.Parse(r.database)
	if err != nil {
		return config, err
	}
	wired, err := r.wires.lay(config.Name, "postgres", own.Host)
	if err != nil {
		return config, err
	}
	if err := r.wires.between(config.Name, "postgres").lengthen(r.Distance); err != nil {
		return config, err
	}
	if config.Database, err = dataSource(r.database, wired, strings.TrimPrefix(own.Path, "/"), config.Name); err != nil {
		return config, err
	}
	rabbit, err := url.Parse(config.AMQP)
	if err != nil {
		return config, err
	}
	if rabbit.Host, err = r.wires.lay(config.Name, "rabbitmq", rabbit.Host); err != nil {
		return config, err
	}
	config.AMQP = rabbit.String()
	config.KafkaWire, err = r.wires.lay(config.Name, "kafka", config.Kafka)
	return config, err
}

// account lets the outbox keep what it publishes, once there is an outbox.
func (r *run) account(ctx context.Context) error {
	operator, err := admin.New(postbox.Database{DB: r.db, Dialect: postbox.PostgreSQL}, admin.Config{}, nil)
	if err != nil {
		return err
	}
	_, err = operator.ChangeSettings(ctx, admin.Outbox(spool.DefaultOutbox), func(stored *admin.Settings) error {
		stored.History = role.OutboxHistory
		return nil
	})
	r.keptSince = time.Now() // the database is on this machine, and has the same clock
	return err
}
