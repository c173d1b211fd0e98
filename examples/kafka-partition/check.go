package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/brokers/kafkabroker"
)

// tables of the example. Nothing in them keeps an effect from being there twice or too early.
const tables = `
	CREATE TABLE IF NOT EXISTS partition_example_sent (
		payload text PRIMARY KEY,
		key     text NOT NULL
	);
	CREATE TABLE IF NOT EXISTS partition_example_effects (
		number  bigserial PRIMARY KEY,
		key     text NOT NULL,
		payload text NOT NULL
	);`

// work is what the processes do, and what is counted of it.
type work struct {
	db                      *sql.DB
	running, most, failures atomic.Int64
	took                    time.Duration
}

// begin counts how many handlers run at a time, until the function that it returns is called.
func (w *work) begin() (end func()) {
	now := w.running.Add(1)
	for most := w.most.Load(); now > most && !w.most.CompareAndSwap(most, now); most = w.most.Load() {
	}
	return func() { w.running.Add(-1) }
}

var errPlanned = errors.New("this handler fails after it has written")

// strike fails one time in sixteen.
func (w *work) strike() error {
	const sixteenth = 16
	if rand.IntN(sixteenth) == 0 { //nolint:gosec // any dice will do
		w.failures.Add(1)
		return errPlanned
	}
	return nil
}

// send publishes the messages to Kafka, as any producer would, and every fifth one twice. What was
// sent is committed afterwards: rows of a run that is interrupted in between would wait for
// messages that never come.
func send(ctx context.Context, s settings) error {
	const fifth = 5
	publisher, err := kafkabroker.NewPublisher(kafkabroker.DefaultPublisherConfig(strings.Split(s.kafka, ",")), watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	db, err := sql.Open("postgres", s.database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	start := postbox.NewMessageID() // later runs have later ids
	var all []*message.Message
	for n := range s.messages {
		key, payload := fmt.Sprintf("key %d", n%s.keys), fmt.Sprintf("%s-%06d", start, n)
		if _, err := tx.ExecContext(ctx, `INSERT INTO partition_example_sent (payload, key) VALUES ($1, $2)`, payload, key); err != nil {
			return err
		}
		msg := message.NewMessage(postbox.NewMessageID(), []byte(payload))
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
		all = append(all, msg)
		if n%fifth == 0 {
			all = append(all, msg)
		}
	}
	if err := publisher.Publish(s.topic, all...); err != nil {
		return err
	}
	return tx.Commit()
}

// wait returns when each message has its effect, and nothing waits.
func (w *work) wait(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left, err := w.count(ctx, `SELECT (SELECT COUNT(*) FROM partition_example_messages) + (SELECT COUNT(*) FROM partition_example_sent s
			WHERE NOT EXISTS (SELECT 1 FROM partition_example_effects e WHERE e.payload = s.payload))`)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d messages: %w", left, ctx.Err())
		case <-tick.C:
		}
	}
}

// verify counts what must not be, over all runs of the example.
func (w *work) verify(ctx context.Context, s settings) error {
	fmt.Printf("%d messages of %d keys in one partition, %s each: %.1f s, up to %d at a time. Handlers failed %d times.\n",
		s.messages, s.keys, handlerTime, w.took.Seconds(), w.most.Load(), w.failures.Load())
	var counts []any
	for _, query := range []string{
		`SELECT COUNT(*) FROM partition_example_sent`,
		`SELECT COUNT(*) FROM partition_example_sent s WHERE NOT EXISTS (SELECT 1 FROM partition_example_effects e WHERE e.payload = s.payload)`,
		`SELECT COUNT(*) - COUNT(DISTINCT payload) FROM partition_example_effects`,
		`SELECT COUNT(*) FROM (SELECT payload, LAG(payload) OVER (PARTITION BY key ORDER BY number) AS before FROM partition_example_effects) AS pairs WHERE before > payload`,
	} {
		n, err := w.count(ctx, query)
		if err != nil {
			return err
		}
		counts = append(counts, n)
	}
	fmt.Printf("RESULT messages=%d lost=%d applied_twice=%d order_violations=%d\n", counts...)
	if counts[1] != 0 || counts[2] != 0 || counts[3] != 0 {
		return errors.New("this must not be")
	}
	return nil
}

func (w *work) count(ctx context.Context, query string) (n int, err error) {
	err = w.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
