package prove

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// errorLine begins a line on the standard output of a process that says why it ends.
const errorLine = "error: "

// flaws are faults that tests plant in processes, to see that a run finds them.
type flaws struct {
	Early     bool // acknowledges messages before they are handled
	Outside   bool // writes effects outside of the transaction
	Twice     bool // writes some effects twice
	Unordered bool // handles the queue without order
	Leaks     bool // publishes outside of the transaction
}

var planted flaws

// child is a process of a run.
type child struct {
	config

	place  place // without a handle: names only
	db     *sql.DB
	client *client

	faults context.Context //nolint:containedctx // ends when processes catch up
	calm   context.CancelFunc

	out  sync.Mutex
	to   io.Writer
	dice dice
}

// dice can be used by many.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) n(below int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.IntN(below)
}

func (d *dice) upTo(most time.Duration) time.Duration { return time.Duration(d.n(int(most) + 1)) }

// Process is a process of a run: it does what the first line of its input says, until the input
// says stop or ends. It returns nil after a clean stop.
func Process(ctx context.Context, open func(dialect postbox.Dialect, dsn string) (*sql.DB, error), input io.Reader, output io.Writer) error {
	lines := bufio.NewReader(input)
	text, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	c := &child{to: output}
	if err := json.Unmarshal(text, &c.config); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c.faults, c.calm = context.WithCancel(ctx)
	defer c.calm()
	go func() {
		for {
			switch text, err := lines.ReadString('\n'); {
			case err != nil:
				os.Exit(1) // the process that has started this one is gone
			case text == stopLine:
				stop()
			case text == calmLine:
				c.calm()
			}
		}
	}()
	err = c.work(ctx, func(dsn string) (*sql.DB, error) { return open(c.Dialect, dsn) })
	if err != nil {
		c.say(errorLine + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return err
}

// say tells the process that judges what has happened.
func (c *child) say(text string) {
	c.out.Lock()
	defer c.out.Unlock()
	_, _ = fmt.Fprintln(c.to, text)
}

func (c *child) work(ctx context.Context, open func(dsn string) (*sql.DB, error)) (err error) {
	if c.Pooled {
		c.db, err = OpenPooled(open, c.DSN)
	} else {
		c.db, err = open(c.DSN)
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.db.Close() }()
	c.db.SetMaxOpenConns(c.Pool)
	c.db.SetMaxIdleConns(c.Pool)
	if planted.Leaks { // on connections of its own
		c.db.SetMaxOpenConns(2 * c.Pool)
	}
	c.place = place{dialect: c.Dialect, schema: c.Schema, prefix: c.Prefix}
	c.dice.rand = rand.New(rand.NewPCG(c.Seed, 2)) //nolint:gosec // faults need no secret dice
	c.client = newClient(c.Broker, c.Secret)
	var cutting sync.WaitGroup
	defer cutting.Wait()
	defer c.calm()
	if c.Dialect != postbox.SQLite && !c.Pooled {
		cutting.Go(func() { c.cutIdle(c.faults) })
	}
	switch c.Role {
	case producers:
		return c.produce(ctx)
	case forwarders:
		return c.forward(ctx)
	case inboxes:
		return c.consume(ctx)
	case queues:
		return c.workOff(ctx)
	case batches:
		return c.workOffBatches(ctx)
	}
	return fmt.Errorf("there is no role %q", c.Role)
}

// database is what the library is told.
func (c *child) database() postbox.Database {
	return postbox.Database{DB: c.db, Dialect: c.Dialect, Schema: c.Schema, Prefix: c.Prefix, DisablePreparedStatements: c.Pooled}
}

// OpenPooled opens a database that may be behind a pooler in transaction mode, for which lib/pq
// must send a statement in one step. Otherwise that of another client could run with its arguments:
// see docs/poolers.md.
func OpenPooled(open func(dsn string) (*sql.DB, error), dsn string) (*sql.DB, error) {
	const option = "binary_parameters=yes"
	db, err := open(dsn)
	if err != nil || !strings.HasPrefix(fmt.Sprintf("%T", db.Driver()), "*pq.") || strings.Contains(dsn, "binary_parameters") {
		return db, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	switch {
	case !strings.Contains(dsn, "://"):
		dsn += " " + option
	case strings.Contains(dsn, "?"):
		dsn += "&" + option
	default:
		dsn += "?" + option
	}
	return open(dsn)
}

// tuning lets processes notice quickly what others do.
func tuning() postbox.Tuning {
	return postbox.Tuning{Lease: lease, PollMax: 200 * time.Millisecond, ProbeMax: 500 * time.Millisecond, PageSize: 200}
}

// forever never makes a message a dead letter: faults are no fault of messages.
func forever() postbox.RetryProfile {
	return postbox.RetryProfile{Attempts: -1, Base: retryPause, Cap: time.Second}
}

// closePatience is how long handlers and calls may take when a process ends.
const closePatience = 2 * lease

func (c *child) forward(ctx context.Context) error {
	t := tuning()
	t.CloseTimeout = closePatience
	f, err := forwarder.New(c.database(), publisher{c.client}, forwarder.Config{
		Tuning: t, Retry: forever(), Concurrency: 16, Classify: postbox.ClassifyNetwork,
	}, nil)
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// keys is how many ordering keys there are: few, so that each has many messages.
const keys = 20

func keyName(n int) string { return fmt.Sprintf("key-%d", n) }

var errChangedMind = errors.New("the producer rolls back")

// pause is the longest pause of a producer between two transactions.
const pause = 60 * time.Millisecond

// intent is a message as a producer has written it.
type intent struct {
	Message string `json:"message"`
	Key     string `json:"key"`
	Seq     int64  `json:"seq"`
}

func (c *child) produce(ctx context.Context) error {
	to, err := forwarder.NewPublisher(c.database(), forwarder.PublisherConfig{AllowAutocommit: planted.Leaks}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	var producing sync.WaitGroup
	for range c.Pool {
		producing.Go(func() {
			for key := anyKey; key != anyKey && ctx.Err() == nil || wait(ctx, c.dice.upTo(pause)); {
				err := postbox.InTx(context.WithoutCancel(ctx), c.db, func(ctx context.Context, tx *sql.Tx) (err error) {
					key, err = c.transact(ctx, tx, to, key)
					return err
				})
				if err != nil {
					key = anyKey
				}
				switch {
				case errors.Is(err, errChangedMind):
					c.say(rolledBack)
				case errors.Is(err, postbox.ErrCommitUnknown):
					c.say(unknown)
				case err != nil:
					wait(ctx, retryPause)
				}
			}
		})
	}
	producing.Wait()
	return nil
}

// anyKey is no key in particular.
const anyKey = -1

// transact writes one to three messages, the row of each, and the number of each in its key. The
// key's row is locked until the end, so that the numbers are in the order of the commits. It
// returns the key that the next transaction takes at once: that of a message which others have
// overtaken.
func (c *child) transact(ctx context.Context, tx *sql.Tx, to *forwarder.Publisher, key int) (next int, err error) {
	intents := make([]intent, 1+c.dice.n(3))
	if key == anyKey {
		key = c.dice.n(keys + 4)
	}
	if key < keys { // else they are in no order
		last, err := c.take(ctx, tx, keyName(key), len(intents))
		if err != nil {
			return anyKey, err
		}
		for i := range intents {
			intents[i].Key, intents[i].Seq = keyName(key), last-int64(len(intents)-1-i)
		}
	}
	for i := range intents {
		intents[i].Message = postbox.NewMessageID()
		_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (message, k, seq) VALUES ('%s', '%s', %d)", c.place.table("intents"), intents[i].Message, intents[i].Key, intents[i].Seq))
		if err != nil {
			return anyKey, err
		}
	}
	if planted.Leaks {
		ctx = postbox.ContextWithTx(ctx, nil)
	}
	if err := c.publish(ctx, to, intents); err != nil {
		return anyKey, err
	}
	next = anyKey
	if hold := c.hold(); hold > 0 {
		c.say(heldOpen)
		wait(ctx, hold)
		next = key
	}
	if c.dice.n(60) == 0 {
		c.cutOwn(ctx, tx)
	}
	if c.dice.n(15) == 0 {
		return anyKey, errChangedMind
	}
	return next, nil
}

// hold is how long a transaction stays open before it ends: some for long, more for a moment.
func (c *child) hold() time.Duration {
	switch n := c.dice.n(40); {
	case n == 0:
		return c.dice.upTo(c.Hold)
	case n < 4:
		return c.dice.upTo(c.Hold / 8)
	}
	return 0
}

// take takes the next numbers of a key, and returns the last of them.
func (c *child) take(ctx context.Context, tx *sql.Tx, key string, n int) (last int64, err error) {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET seq = seq + %d WHERE k = '%s'", c.place.table("keys"), n, key)); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, fmt.Sprintf("SELECT seq FROM %s WHERE k = '%s'", c.place.table("keys"), key)).Scan(&last)
	return last, err
}
