package security_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/brokers/amqpbroker"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The password of every address below, and a part of it that a driver may take for something else.
const (
	password     = "geheim5ecret"
	passwordTail = "5ecret"
)

// address is one that leads nowhere.
type address struct {
	dialect     postbox.Dialect
	driver, dsn string
}

func addresses(t *testing.T) map[string]address {
	t.Helper()
	refusing := passwordServer(t)
	all := map[string]address{
		"mysql refused port": {postbox.MySQL, "mysql", "app:" + password + "@tcp(127.0.0.1:1)/shop"},
		"mysql unknown host": {postbox.MySQL, "mysql", "app:" + password + "@tcp(nowhere.invalid:3306)/shop"},
	}
	for _, driver := range []string{"postgres", "pgx"} {
		for name, dsn := range map[string]string{
			"refused port":   "postgres://app:" + password + "@127.0.0.1:1/shop?sslmode=disable",
			"unknown host":   "postgres://app:" + password + "@nowhere.invalid:5432/shop?sslmode=disable",
			"wrong password": "postgres://app:" + password + "@" + refusing + "/shop?sslmode=disable",
			"no port":        "postgres://app:" + password + "@127.0.0.1:port/shop",
			"slash":          "postgres://app:geheim/" + passwordTail + "@127.0.0.1:5432/shop",
			"escape":         "postgres://app:geheim%zz" + passwordTail + "@127.0.0.1:5432/shop",
			"words":          "host=127.0.0.1 port=x password=" + password,
			"quote":          "host=127.0.0.1 port=1 password='" + password,
		} {
			all[driver+" "+name] = address{postbox.PostgreSQL, driver, dsn}
		}
	}
	return all
}

// passwordServer is a PostgreSQL server that asks for a password and refuses it.
func passwordServer(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			refuse(conn)
		}
	}()
	return listener.Addr().String()
}

// refuse reads the startup message and the password, and answers as a server does.
func refuse(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(conn)
	var size uint32
	if binary.Read(reader, binary.BigEndian, &size) != nil {
		return
	}
	_, _ = reader.Discard(int(size) - 4)
	_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3}) // send the password as it is
	if _, err := reader.ReadByte(); err != nil || binary.Read(reader, binary.BigEndian, &size) != nil {
		return
	}
	_, _ = reader.Discard(int(size) - 4)
	fields := "SFATAL\x00VFATAL\x00C28P01\x00Mpassword authentication failed for user \"app\"\x00\x00"
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(fields)+4)), fields...)) //nolint:gosec // it is short
}

// Whatever is wrong with an address, its password is in no error and in no line of the log, at any
// level.
func TestErrors_hold_no_passwords(t *testing.T) {
	t.Parallel()
	for name, where := range addresses(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(where.driver, where.dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			clean(t, everywhere(t, db, where.dialect, where.dsn)...)
		})
	}
}

func TestErrors_hold_no_passwords_of_MariaDB(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	config, err := mysql.ParseDSN(database.DSN)
	require.NoError(t, err)
	config.Passwd = password
	database.DSN = config.FormatDSN()
	clean(t, everywhere(t, database.Open(t), database.Dialect, "")...)
}

// everywhere does everything that speaks to the database first, and returns the texts of all errors
// and of the log.
func everywhere(t *testing.T, db *sql.DB, dialect postbox.Dialect, listen string) []string {
	t.Helper()
	logger, ctx := newCapture(), t.Context()
	if dialect != postbox.PostgreSQL {
		listen = ""
	}
	texts := []string{}
	failing := func(err error) {
		t.Helper()
		require.Error(t, err)
		texts = append(texts, err.Error())
	}
	failing(postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: dialect}))
	failing(postbox.InTx(ctx, db, func(context.Context, *sql.Tx) error { return nil }))

	publisher, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: dialect}, forwarder.PublisherConfig{AllowAutocommit: true}, logger)
	require.NoError(t, err)
	failing(publisher.Publish("orders", message.NewMessage("1", nil)))
	publisher.Announce()
	require.NoError(t, publisher.Close())

	fwd, err := forwarder.New(postbox.Database{DB: db, Dialect: dialect}, sink{}, forwarder.Config{Tuning: postbox.Tuning{ListenDSN: listen}}, logger)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	require.Eventually(t, func() bool {
		said := logger.everything()
		return strings.Contains(said, "its database and goes on trying") && strings.Contains(said, "cannot clean up")
	}, patience, tick)
	require.NoError(t, fwd.Close())
	require.NoError(t, <-ended)

	store, err := inboxstore.New(postbox.Database{DB: db, Dialect: dialect}, inboxstore.Config{}, logger)
	require.NoError(t, err)
	key := inboxstore.Key{Consumer: "billing", Topic: "orders", MessageID: "1"}
	_, err = store.Once(ctx, key, func(context.Context) error { return nil })
	failing(err)
	_, err = store.RecordFailure(ctx, key, errBroker)
	failing(err)
	failing(store.Bury(ctx, key, message.NewMessage("1", nil), 1, errBroker))
	_, err = store.Defer(ctx, "queue", key, message.NewMessage("1", nil))
	failing(err)
	_, err = inbox.CoreOf(store).PendingQueues(ctx)
	failing(err)
	require.NoError(t, store.Close())

	a, err := admin.New(postbox.Database{DB: db, Dialect: dialect}, admin.Config{}, logger)
	require.NoError(t, err)
	_, err = a.Queues(ctx)
	failing(err)
	_, err = a.Account(ctx, admin.Outbox("outbox"))
	failing(err)
	_, _, err = a.DeadLetters(ctx, admin.Filter{})
	failing(err)
	failing(errorOf(a.Requeue(ctx, admin.Filter{ID: 1}, admin.Again{})))
	_, err = a.Requeue(ctx, admin.Filter{All: true}, admin.Again{})
	failing(err)
	failing(a.Pause(ctx, admin.Filter{Target: admin.Outbox("outbox"), All: true}))
	_, _, err = a.Messages(ctx, admin.Filter{Target: admin.Outbox("outbox")})
	failing(err)
	return append(texts, logger.everything())
}

func clean(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.NotContains(t, text, passwordTail)
		require.NotContains(t, text, "geheim")
	}
}

func TestErrors_hold_no_passwords_of_RabbitMQ(t *testing.T) {
	t.Parallel()
	for name, uri := range map[string]string{
		"refused port": "amqp://app:" + password + "@127.0.0.1:1/",
		"unknown host": "amqp://app:" + password + "@nowhere.invalid:5672/",
		"no port":      "amqp://app:" + password + "@127.0.0.1:port/",
		"slash":        "amqp://app:geheim/" + passwordTail + "@127.0.0.1:5672/",
		"escape":       "amqp://app:geheim%zz" + passwordTail + "@127.0.0.1:5672/",
		"space":        "amqp://app:geheim " + passwordTail + "@127.0.0.1:5672/",
		"scheme":       "http://app:" + password + "@127.0.0.1:5672/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := newCapture()
			publisher, err := amqpbroker.NewPublisher(amqpbroker.DefaultPublisherConfig(uri), logger)
			if err == nil {
				err = publisher.Publish("orders", message.NewMessage("1", nil))
				require.NoError(t, publisher.Close())
			}
			require.Error(t, err)
			topologyErr := amqpbroker.EnsureTopology(amqpbroker.DefaultSubscriberConfig(uri, "billing"), "orders")
			require.Error(t, topologyErr)
			clean(t, err.Error(), topologyErr.Error(), logger.everything())
		})
	}
}

func TestErrors_hold_no_passwords_of_Kafka(t *testing.T) {
	t.Parallel()
	config := kafkabroker.DefaultPublisherConfig([]string{"127.0.0.1:1"})
	config.OverwriteSaramaConfig.Net.SASL.Enable = true
	config.OverwriteSaramaConfig.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	config.OverwriteSaramaConfig.Net.SASL.User = "app"
	config.OverwriteSaramaConfig.Net.SASL.Password = password
	config.OverwriteSaramaConfig.Metadata.Retry.Max = 0
	logger := newCapture()
	_, err := kafkabroker.NewPublisher(config, logger)
	require.Error(t, err)
	_, theirs := kafka.NewPublisher(config, logger)
	require.Error(t, theirs)
	clean(t, err.Error(), theirs.Error(), logger.everything())
}
