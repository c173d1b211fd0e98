package pipeline_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// childVariable tells this binary to be a process that a test kills, and what to do until then.
const childVariable = "POSTBOX_PIPELINE_CHILD"

// childConfig is how the process finds the world that the test made.
type childConfig struct {
	Dialect            postbox.Dialect
	Driver             string
	Producer, Consumer string // data sources
	AMQP               string
	Orders, Receipts   string
}

// F5: whatever instant it dies at, between any two statements and between broker and database,
// nothing is lost or done twice. The process is both a forwarder and a consumer, so it is killed in
// both roles, and on PostgreSQL only its connections die. Also covers G3 and G4.
func TestKill_PostgreSQL_G2_killed_processes_lose_nothing(t *testing.T) {
	t.Parallel()
	runKills(t, testdb.Postgres, 10)
}

// On SQLite the database dies with the process, in the middle of a write.
// Also covers G3, G4 and F5.
func TestKill_SQLite_G2_killed_processes_lose_nothing(t *testing.T) {
	t.Parallel()
	runKills(t, testdb.SQLite, 5) // SQLite takes a second to start under the race detector
}

func runKills(t *testing.T, open func(t *testing.T) *testdb.Database, kills int) {
	t.Helper()
	const keys = 6
	uri := testservice.Address(t, testservice.AMQPVariable)
	w := newWorld(t, rabbitMQ(uri), open)
	config, err := json.Marshal(childConfig{
		Dialect: w.producer.Dialect, Driver: w.producer.Driver, Producer: w.producer.DSN, Consumer: w.consumer.DSN,
		AMQP: uri, Orders: w.orders, Receipts: w.receipts,
	})
	require.NoError(t, err)

	for range kills {
		var producing errgroup.Group // the producer lives
		producing.Go(func() error { return w.produce(t.Context(), keys, 5, 20*time.Millisecond) })
		victim := startChild(t, string(config))
		before := w.applied(t, "mail")
		require.Eventually(t, func() bool { return w.applied(t, "mail") > before }, patience, 5*time.Millisecond,
			"nothing moves after a kill")
		victim.killAfter(t, rand.N(400*time.Millisecond)) //nolint:gosec // any instant will do
		require.NoError(t, producing.Wait())
	}
	last := startChild(t, string(config))
	w.flush(t, keys)
	last.killAfter(t, 0)
	w.check(t, true)
	t.Logf("%d committed, %d rolled back, %d kills", w.total(), w.undone, kills)
}

// child is the process that is killed.
type child struct {
	command *exec.Cmd
	output  *bytes.Buffer
	leash   io.Closer
}

func startChild(t *testing.T, config string) *child {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	c := &child{command: exec.Command(executable), output: &bytes.Buffer{}} //nolint:noctx,gosec // this binary again, killed by hand
	c.command.Env = append(os.Environ(), childVariable+"="+config)
	c.command.Stdout, c.command.Stderr = c.output, c.output
	c.leash, err = c.command.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, c.command.Start())
	t.Cleanup(func() {
		if c.command.ProcessState == nil { // the test has failed
			_ = c.command.Process.Kill()
			_ = c.command.Wait()
			t.Logf("the process said:\n%s", c.output)
		}
	})
	return c
}

// killAfter sends SIGKILL when the time is over.
func (c *child) killAfter(t *testing.T, after time.Duration) {
	t.Helper()
	<-time.After(after)
	require.NoError(t, c.command.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, c.command.Wait(), &exit)
	said := c.output.String()
	require.Equal(t, "signal: killed", exit.String(), "it ended by itself:\n%s", said)
	require.NotContains(t, said, "DATA RACE")
	require.NotContains(t, strings.ToLower(said), "dead letters", said)
}

// runChild is the process: two forwarders and a consumer. It ends when it is killed, or when the
// test that started it is gone, which closes its standard input.
func runChild(text string) int {
	if err := work(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func work(text string) error {
	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	logger := watermill.NewStdLoggerWithOut(os.Stderr, false, false)
	w := &world{
		producer: &testdb.Database{Dialect: config.Dialect, Driver: config.Driver, DSN: config.Producer},
		consumer: &testdb.Database{Dialect: config.Dialect, Driver: config.Driver, DSN: config.Consumer},
		broker:   rabbitMQ(config.AMQP), orders: config.Orders, receipts: config.Receipts,
	}
	for _, database := range []*testdb.Database{w.producer, w.consumer} {
		db, err := sql.Open(database.Driver, database.DSN)
		if err != nil {
			return err
		}
		if database.Dialect == postbox.SQLite {
			db.SetMaxOpenConns(1)
		}
		database.DB = db
		if _, err := startRelay(w.broker, database, db, nil, logger); err != nil {
			return err
		}
	}
	s, err := newService(w, w.consumer.DB, logger)
	if err != nil {
		return err
	}
	return s.start()
}
