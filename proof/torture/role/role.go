// Package role is what the processes of a torture run do: each is one service as a user would write
// it, with Postbox as users get it. What they know of the run is that they write down what they do.
package role

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/proof/torture/history"
)

// Variable tells the binary to be a process of a run, and which.
const Variable = "POSTBOX_TORTURE_ROLE"

// Role is what a process does.
type Role string

// The roles.
const (
	Producer  Role = "producer"
	Forwarder Role = "forwarder"
	Consumer  Role = "consumer"
	Worker    Role = "worker"
	Operator  Role = "operator"
)

// Config is what a process gets to know.
type Config struct {
	// Name of the process and its incarnation, such as "consumer-2/3".
	Name string
	Role Role
	// Driver and Database reach PostgreSQL, AMQP reaches RabbitMQ, each through a wire of its own
	// that faults may cut.
	Driver, Database, AMQP string
	// Kafka is the address of the broker, as it names itself, and KafkaWire where its wire begins.
	Kafka, KafkaWire string
	// Pool is the number of connections to the database that the process may have.
	Pool int
	// Rate is the number of transactions a second, for producers.
	Rate float64
	// Histories and Marks are folders: of the records, and of what all processes must remember of
	// failures.
	Histories, Marks string
}

// Lease of everything that has one: short, so that a pause outlives it.
const Lease = 3 * time.Second

// soon paces retries: a run has little time.
func soon(attempts int) postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: attempts, Base: 20 * time.Millisecond, Cap: 200 * time.Millisecond}
}

// Environ returns the environment of a process with that config.
func (c Config) Environ() ([]string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return append(os.Environ(), Variable+"="+string(text)), nil
}

// process is what every role has.
type process struct {
	Config

	db      *sql.DB
	history *history.Writer
	logger  watermill.LoggerAdapter
}

// Run is the life of a process: until SIGTERM, which is a clean stop, or the end of the driver,
// which holds the other end of its standard input.
func Run(text string) error {
	var config Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // nobody is left who could want anything
	}()
	writer, err := history.NewWriter(config.Histories, config.Name)
	if err != nil {
		return err
	}
	p := &process{Config: config, history: writer, logger: watermill.NewStdLoggerWithOut(os.Stderr, false, false)}
	if p.db, err = sql.Open(config.Driver, config.Database); err != nil {
		return err
	}
	defer func() { _ = p.db.Close() }()
	p.db.SetMaxOpenConns(config.Pool)
	p.db.SetMaxIdleConns(config.Pool)
	err = map[Role]func(context.Context) error{
		Producer: p.produce, Forwarder: p.forward, Consumer: p.consume, Worker: p.work, Operator: p.operate,
	}[config.Role](ctx)
	if ctx.Err() != nil && err == nil {
		fmt.Fprintln(os.Stderr, "stopped cleanly")
	}
	return err
}

// retryPause is how long a process waits for a service that is away when it starts.
const retryPause = 200 * time.Millisecond

// insist does something until it succeeds or ctx ends: processes start at any time, whatever is
// away.
func insist[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for {
		result, err := do()
		if err == nil {
			return result, nil
		}
		fmt.Fprintln(os.Stderr, "starting:", err)
		if !wait(ctx, retryPause) {
			return result, err
		}
	}
}

// wait returns false if ctx ends first.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
