package crashpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// inProcess begins the names of calls that use no connection.
const inProcess = "CALL "

// world is what outlasts a process: the database, and the broker, which has what was published and
// what it still has to deliver.
type world struct {
	database *testdb.Database

	mu        sync.Mutex
	published []sent
	closed    bool           // the broker refuses everything, for good
	handled   []string       // runs of handlers, by message id
	refused   map[string]int // how often the broker or a handler has refused a message
	unacked   []*message.Message
	heard     map[string]error // what callers were told
}

// sent is a message that the broker got.
type sent struct{ topic, id, key string }

func newWorld(database *testdb.Database) *world {
	return &world{database: database, refused: map[string]int{}, heard: map[string]error{}}
}

// process is one life of a program, on its own handle of the database.
type process struct {
	w    *world
	db   *sql.DB
	fate *fate
}

func (w *world) process(t *testing.T, f *fate) *process {
	t.Helper()
	db := mortal(w.database.DB.Driver(), w.database.DSN, w.database.Dialect == postbox.MySQL, f)
	t.Cleanup(func() { _ = db.Close() })
	return &process{w: w, db: db, fate: f}
}

// timePasses lets the leases of a dead process run out.
func (w *world) timePasses(t *testing.T) {
	t.Helper()
	for _, expire := range expires {
		w.database.Exec(t, expire)
	}
}

// call is something that a process does to the world without its database.
func (p *process) call(what string, do func(w *world) error) error {
	return p.fate.call(inProcess+what, nil, func() error {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		return do(p.w)
	})
}

// hears notes what a caller was told.
func (p *process) hears(what string, err error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.heard[what] = err
}

// lookPause is how often a life is looked at. Each millisecond would be a third of what the servers
// have to do.
const lookPause = 5 * time.Millisecond

// until runs something until nothing is left to do.
func (p *process) until(ctx context.Context, run func(ctx context.Context) error, nothingLeft func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), <-ended)
		case err := <-ended:
			return fmt.Errorf("it ended by itself: %w", err)
		case <-look.C:
		}
		if done, err := nothingLeft(ctx); done || err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
	}
}

// drained says whether nothing of a spool is pending.
func (w *world) drained(spool string) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		var pending int
		if err := w.database.DB.QueryRowContext(ctx, w.database.Bind(countPending), spool).Scan(&pending); err != nil {
			return false, ignoreEnd(ctx, err)
		}
		return pending == 0, nil
	}
}

// effect is what a handler, or a service, writes in the transaction that its context carries.
func (p *process) effect(ctx context.Context, what string) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return postbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, p.w.database.Bind(insertEffect), what)
	return err
}

// ignoreEnd drops an error that comes of the end of the context.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // nobody waits for it any more
	}
	return err
}

// newMessage returns a message with an ordering key, if there is one.
func newMessage(id, key string) *message.Message {
	msg := message.NewMessage(id, message.Payload(id))
	if key != "" {
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	}
	return msg
}

// How messages are named tells the broker and the handlers what to do with them.
const (
	flaky = "flaky" // fails the first time
	bad   = "bad"   // always fails
	fatal = "fatal" // fails, and says that it always will
)

var errRefused = errors.New("refused")

// refusal decides about a message. The world is locked.
func (w *world) refusal(id string) error {
	switch {
	case w.closed:
		return postbox.Permanent(errRefused)
	case id == flaky && w.refused[id] > 0:
		return nil
	case id == flaky, id == bad:
		w.refused[id]++
		return errRefused
	case id == fatal:
		w.refused[id]++
		return postbox.Permanent(errRefused)
	default:
		return nil
	}
}

// handle is what all handlers begin with: that they run.
func (p *process) handle(id string) error {
	err := p.call("handler", func(w *world) error {
		w.handled = append(w.handled, id)
		return nil
	})
	if err != nil {
		return err
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.refusal(id)
}

// deliver gives the broker messages to deliver until they are acked.
func (w *world) deliver(messages ...*message.Message) { w.unacked = append(w.unacked, messages...) }

// deliveries returns what is not acked, as fresh messages.
func (w *world) deliveries() []*message.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	copies := make([]*message.Message, len(w.unacked))
	for i, msg := range w.unacked {
		copies[i] = msg.Copy()
	}
	return copies
}

// ack tells the broker that one delivery of a message is over.
func (p *process) ack(id string) error {
	return p.call("ack", func(w *world) error {
		at := slices.IndexFunc(w.unacked, func(msg *message.Message) bool { return msg.UUID == id })
		w.unacked = slices.Delete(w.unacked, at, at+1)
		return nil
	})
}

// check is what an oracle looks at.
type check struct {
	*testing.T
	w *world
	// struck: a fault has happened, so that things may have been done twice.
	struck bool
}

// count returns the one number that a query selects.
func (c *check) count(query string) int { return c.w.database.Count(c.T, query) }

func (c *check) require() *require.Assertions { return require.New(c.T) }
