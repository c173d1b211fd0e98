package pgtail_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// changing is an outbox whose forwarders change how they find messages, and whose producers change where they write them, at random. It knows which
// messages of each key must be published, in which order.
type changing struct {
	*world

	random     *rand.Rand
	broker     *broker
	operator   *admin.Admin
	forwarders []*running
	started    []string // which kinds of forwarders, the latest last
	keys       []*changingKey
	next       int
}

// changingKey is a key with the producer that has it.
type changingKey struct {
	name      string
	inLog     bool
	committed []string
	open      *sql.Tx // a transaction that goes on while others commit
	written   []string
}

// The seed tells what is done, and not how the goroutines take turns. -count=50 is a search.
// Also covers G1, G2, G9 and G12.
func TestOutbox_G3_while_forwarders_and_producers_change_their_ways(t *testing.T) {
	t.Parallel()
	w := newOutboxWorld(t)
	require.NoError(t, pgtail.Setup(t.Context(), w.Postbox(), w.publication()))
	t.Cleanup(func() { require.NoError(t, pgtail.Remove(context.Background(), w.Postbox(), w.publication())) })
	operator, err := admin.New(w.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	seed := rand.Uint64() //nolint:gosec // a test
	t.Logf("seed %d", seed)
	c := &changing{world: w, random: rand.New(rand.NewPCG(seed, 0)), broker: &broker{}, operator: operator} //nolint:gosec // a test
	c.broker.fail = c.trouble
	for n := range 5 {
		c.keys = append(c.keys, &changingKey{name: fmt.Sprint("key-", n), inLog: n%2 == 0})
	}
	steps := 150
	if testing.Short() {
		steps = 40
	}
	acts := []func(){c.write, c.write, c.write, c.write, c.write, c.commit, c.commit, c.changeProducer, c.changeForwarder, c.cut, c.pauseAndResume}
	for range steps {
		acts[c.random.IntN(len(acts))]()
	}
	c.finish()
}

// trouble lets some calls fail. The broker is locked.
func (c *changing) trouble(m *message.Message) error {
	if rand.IntN(40) == 0 { //nolint:gosec // a test
		return fmt.Errorf("%w of %s", errBroker, m.UUID)
	}
	return nil
}

// idle returns a key whose producer has no open transaction, nil if there is none.
func (c *changing) idle() *changingKey {
	k := c.keys[c.random.IntN(len(c.keys))]
	if k.open != nil {
		return nil
	}
	return k
}

// write writes messages of a key in a transaction, which commits, rolls back, or stays open.
func (c *changing) write() {
	k := c.idle()
	if k == nil {
		return
	}
	tx, err := c.DB.BeginTx(c.Context(), nil)
	require.NoError(c, err)
	if c.random.IntN(5) == 0 {
		c.onTx(tx, "SAVEPOINT s")
		c.publishOn(tx, k)
		c.onTx(tx, "ROLLBACK TO SAVEPOINT s")
	}
	var written []string
	for range 1 + c.random.IntN(3) {
		written = append(written, c.publishOn(tx, k))
	}
	switch c.random.IntN(8) {
	case 0:
		require.NoError(c, tx.Rollback())
	case 1:
		k.open, k.written = tx, written
	default:
		require.NoError(c, tx.Commit())
		k.committed = append(k.committed, written...)
	}
}

func (c *changing) onTx(tx *sql.Tx, statement string) {
	_, err := tx.ExecContext(c.Context(), statement)
	require.NoError(c, err)
}

// publishOn writes a message, which is sometimes larger than what the log brings of a row, and returns its id.
func (c *changing) publishOn(tx *sql.Tx, k *changingKey) string {
	c.next++
	m := keyed(fmt.Sprintf("%s-%05d", k.name, c.next), k.name)
	if c.random.IntN(20) == 0 {
		m.Payload = []byte(strings.Repeat("x", 40<<10))
	}
	if k.inLog {
		require.NoError(c, c.emitter("outbox").Bind(tx).Publish("orders", m))
	} else {
		c.publisher(tx, "outbox")("orders", m)
	}
	return m.UUID
}

// commit commits a transaction that was left open.
func (c *changing) commit() {
	for _, k := range c.keys {
		if k.open != nil {
			require.NoError(c, k.open.Commit())
			k.committed, k.open = append(k.committed, k.written...), nil
			return
		}
	}
}

// changeProducer lets the producer of a key write rows, or into the log. To write rows again, it waits until everything is published.
func (c *changing) changeProducer() {
	k := c.idle()
	switch {
	case k == nil:
	case !k.inLog:
		k.inLog = true
	case c.last() == "outbox": // or no forwarder would read the messages of the log
		c.eventually(func() bool { return c.broker.has(k.committed...) }, "everything of the key is published")
		k.inLog = false
	}
}

// last is the kind of the latest forwarder.
func (c *changing) last() string {
	if len(c.started) == 0 {
		return ""
	}
	return c.started[len(c.started)-1]
}

// changeForwarder starts a forwarder that finds messages in some way. There are two at most.
func (c *changing) changeForwarder() {
	if len(c.forwarders) == 2 {
		c.forwarders[0].stop(c.T)
		c.forwarders = c.forwarders[1:]
	}
	kinds := []string{"polling", "tail", "outbox"}
	c.spawn(kinds[(len(c.started)+c.random.IntN(2))%len(kinds)])
}

func (c *changing) spawn(kind string) {
	config := forwarder.Config{
		Retry:   postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond, Attempts: 1000},
		PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, ProbeMin: time.Millisecond, ProbeMax: 10 * time.Millisecond, Lease: 2 * time.Second,
	}
	switch kind {
	case "tail":
		config.Tail = c.tail()
	case "outbox":
		config.Tail = c.outboxTail()
	}
	c.started = append(c.started, kind)
	c.forwarders = append(c.forwarders, c.start(c.broker, config))
}

// cut ends the connections that send the log.
func (c *changing) cut() {
	c.Exec(c.T, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name LIKE "+slotName+" || '%'")
}

// pauseAndResume lets an operator pause something, while messages of a key are written.
func (c *changing) pauseAndResume() {
	ctx, target, key := c.Context(), admin.Outbox("outbox"), c.keys[0].name
	pauses := [][2]func() error{
		{func() error { return c.operator.Pause(ctx, target) }, func() error { return c.operator.Resume(ctx, target) }},
		{func() error { return c.operator.PauseKey(ctx, target, key) }, func() error { return c.operator.ResumeKey(ctx, target, key) }},
		{func() error { return c.operator.PauseTopic(ctx, target, "orders") }, func() error { return c.operator.ResumeTopic(ctx, target, "orders") }},
	}
	if c.Count(c.T, "SELECT COUNT(*) FROM postbox_spools WHERE name = 'outbox'") == 0 {
		return // nothing has used it yet
	}
	chosen := pauses[c.random.IntN(len(pauses))]
	require.NoError(c, chosen[0]())
	c.write()
	require.NoError(c, chosen[1]())
}

// finish lets everything be published, and compares.
func (c *changing) finish() {
	for range c.keys {
		c.commit()
	}
	for _, f := range c.forwarders {
		f.stop(c.T)
	}
	c.forwarders = nil
	c.spawn("outbox")
	c.emit(keyed("last", "last"))
	for _, k := range c.keys { // one may not be stored yet when a later one of another key is published without a row
		c.eventually(func() bool { return c.broker.has(k.committed...) }, "all messages are published")
	}
	c.eventually(func() bool { return c.broker.has("last") && c.rows() == 0 }, "all rows are removed")
	for _, k := range c.keys {
		require.Equal(c, k.committed, first(c.broker.ids(k.name)), "%s, with forwarders %v", k.name, c.started)
	}
	c.forwarders[0].stop(c.T)
}
