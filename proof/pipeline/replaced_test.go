package pipeline_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// shopKeys are written side by side, a message of each at every beat.
	shopKeys = 12
	beat     = 60 * time.Millisecond
	// publishing is how long the broker takes, so that a forwarder has messages in flight at any
	// time.
	publishing = 100 * time.Millisecond
	// lag is how far the database that takes over is behind.
	lag = 700 * time.Millisecond
)

// sale is a row of orders and a message.
type sale struct {
	ID, Key string
	Seq     int
}

// shop is a service whose database is replaced while it works: by a replica that lagged, or by an
// older copy of itself. It writes orders and messages, forwards the messages to a broker that is
// slow, and handles them with an inbox. The numbers of a key come from the database, so they are
// given out again after the orders that the new database does not have.
type shop struct {
	*testdb.Database
	outbox *forwarder.Publisher
	inbox  *inboxstore.Store

	mu        sync.Mutex
	confirmed []sale            // in the order in which COMMIT answered
	log       map[string][]sale // of the broker, by key
	positions map[string]int    // of the consumer, by key
	busy      int               // deliveries under way
	closed    bool              // nothing is delivered
	replaced  bool              // the database is being replaced, or has been
	// across are the messages whose delivery began with the one database and ended with the other.
	// They were handled before the broker delivered the messages before them once more, so no inbox
	// could keep them in order.
	across map[string]bool
}

func newShop(t *testing.T, database *testdb.Database) *shop {
	t.Helper()
	s := &shop{Database: database.Migrate(t), log: map[string][]sale{}, positions: map[string]int{}, across: map[string]bool{}}
	s.Exec(t, "CREATE TABLE orders (message_id VARCHAR(40) NOT NULL, ordering_key VARCHAR(20) NOT NULL, seq INTEGER NOT NULL)")
	id := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	switch database.Dialect {
	case postbox.SQLite:
		id = "INTEGER PRIMARY KEY AUTOINCREMENT"
	case postbox.MySQL:
		id = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	default:
	}
	s.Exec(t, "CREATE TABLE effects (id "+id+", message_id VARCHAR(40) NOT NULL, ordering_key VARCHAR(20) NOT NULL)")
	var err error
	s.outbox, err = forwarder.NewPublisher(s.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	s.inbox, err = inboxstore.New(s.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.inbox.Close())
		require.NoError(t, s.outbox.Close())
	})
	return s
}

// Publish is the broker's.
func (s *shop) Publish(_ string, messages ...*message.Message) error {
	<-time.After(publishing)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range messages {
		var o sale
		if err := json.Unmarshal(msg.Payload, &o); err != nil {
			return err
		}
		s.log[o.Key] = append(s.log[o.Key], o)
	}
	return nil
}

// Close is the broker's.
func (s *shop) Close() error { return nil }

// sell writes an order and its message. An error is that of a database that is away: there will be
// another order.
func (s *shop) sell(ctx context.Context, key string) error {
	o := sale{ID: postbox.NewMessageID(), Key: key}
	err := postbox.InTx(ctx, s.DB, func(ctx context.Context, tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, s.Bind("SELECT COALESCE(MAX(seq), 0) + 1 FROM orders WHERE ordering_key = ?"), key)
		if err := row.Scan(&o.Seq); err != nil {
			return err
		}
		insert := s.Bind("INSERT INTO orders (message_id, ordering_key, seq) VALUES (?, ?, ?)")
		if _, err := tx.ExecContext(ctx, insert, o.ID, o.Key, o.Seq); err != nil {
			return err
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessage(o.ID, payload)
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
		msg.SetContext(ctx)
		return s.outbox.Publish("orders", msg)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed = append(s.confirmed, o)
	return nil
}

// every calls do for each key, again and again, side by side, until ctx ends.
func every(ctx context.Context, pause time.Duration, do func(ctx context.Context, key string)) *sync.WaitGroup {
	var all sync.WaitGroup
	for n := range shopKeys {
		key := fmt.Sprintf("key-%d", n)
		all.Go(func() {
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					do(context.WithoutCancel(ctx), key)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return &all
}

// deliver gives the consumer what the broker has of a key, until it has all, or fails.
func (s *shop) deliver(ctx context.Context, key string) {
	for {
		o, replaced, ok := s.take(key)
		if !ok {
			return
		}
		id := inboxstore.Key{Consumer: "shipping", Topic: "orders", MessageID: o.ID}
		_, err := s.inbox.Once(ctx, id, func(ctx context.Context) error {
			tx, _ := postbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, s.Bind("INSERT INTO effects (message_id, ordering_key) VALUES (?, ?)"), o.ID, o.Key)
			return err
		})
		s.mu.Lock()
		s.busy--
		if err == nil {
			s.positions[key]++
			s.across[o.ID] = s.across[o.ID] || s.replaced != replaced
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *shop) take(key string) (o sale, replaced, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.positions[key] >= len(s.log[key]) {
		return sale{}, false, false
	}
	s.busy++
	return s.log[key][s.positions[key]], s.replaced, true
}

// gate stops the deliveries, or lets them begin again.
func (s *shop) gate(closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = closed
}

// replay lets the broker deliver once more all that it ever had, in its order: that an inbox has
// acked a message to it means nothing when the database has forgotten the effect.
func (s *shop) replay(t *testing.T) {
	t.Helper()
	s.awaitIdle(t)
	s.mu.Lock()
	clear(s.positions)
	s.mu.Unlock()
	s.gate(false)
}

// awaitIdle waits until no delivery is under way.
func (s *shop) awaitIdle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.busy == 0
	}, patience, time.Millisecond)
}

// committed is how many orders have been confirmed.
func (s *shop) committed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed)
}

// awaitAll waits until everything is published and delivered.
func (s *shop) awaitAll(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var pending int
		if s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM postbox_messages").Scan(&pending) != nil || pending > 0 {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for key, log := range s.log {
			if s.positions[key] < len(log) {
				return false
			}
		}
		return s.busy == 0
	}, patience, 50*time.Millisecond, "messages still wait")
}

// replacement is how a database is replaced.
type replacement struct {
	// fork fixes what the database that will take over has: all that was confirmed before.
	fork func(t *testing.T)
	// replace ends the one and lets the other take over.
	replace func(t *testing.T)
	// lossless: the other has all that was confirmed.
	lossless bool
}

// live lets the shop work, replaces its database, and judges by what the new one has.
func (s *shop) live(t *testing.T, r replacement) {
	t.Helper()
	fwd, err := forwarder.New(s.Postbox(), s, forwarder.Config{Tuning: postbox.Tuning{PollMax: 100 * time.Millisecond}}, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	forwarding := make(chan error, 1)
	go func() { forwarding <- fwd.Run(ctx) }()
	selling, close := context.WithCancel(ctx)
	defer close()
	sellers := every(selling, beat, func(ctx context.Context, key string) { _ = s.sell(ctx, key) })
	consumers := every(ctx, beat/4, s.deliver)

	s.awaitMore(t, 5*shopKeys)
	before := s.committed()
	r.fork(t)
	<-time.After(lag)
	s.gate(true)
	s.mu.Lock()
	s.replaced = true
	s.mu.Unlock()
	r.replace(t)
	s.replay(t)
	after := s.committed()
	s.awaitMore(t, 15*shopKeys)
	close()
	sellers.Wait()
	s.awaitAll(t)
	lost := s.judge(t, before, after, r.lossless)
	require.Equal(t, r.lossless, lost == 0, "%d orders are lost", lost)
	stop()
	consumers.Wait()
	require.NoError(t, <-forwarding)
}

func (s *shop) awaitMore(t *testing.T, number int) {
	t.Helper()
	want := s.committed() + number
	require.Eventually(t, func() bool { return s.committed() >= want }, patience, 10*time.Millisecond)
}

// judge compares what was confirmed before the fork and after the database was replaced, and all
// else that the new one has, with what was published and done. It returns how many orders the old
// one confirmed that the new one lacks.
func (s *shop) judge(t *testing.T, before, after int, lossless bool) (lost int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	has := map[string]bool{}
	for n := range shopKeys {
		key := fmt.Sprintf("key-%d", n)
		orders := s.column(t, "SELECT message_id FROM orders WHERE ordering_key = ? ORDER BY seq", key)
		for _, id := range orders {
			has[id] = true
		}
		known := func(ids []string) []string {
			return slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(orders, id) })
		}
		var published []string
		for _, o := range s.log[key] {
			if !slices.Contains(published, o.ID) {
				published = append(published, o.ID)
			}
		}
		require.Equal(t, orders, known(published), "G2, G3: what the new database has is published, and in its order (%s)", key)
		effects := known(s.column(t, "SELECT message_id FROM effects WHERE ordering_key = ? ORDER BY id", key))
		require.ElementsMatch(t, orders, effects, "G4: and has its effect once (%s)", key)
		early := func(id string) bool { return s.across[id] && !lossless } // a database that has lost nothing has the effects of those before
		inOrder := func(ids []string) []string { return slices.DeleteFunc(slices.Clone(ids), early) }
		require.Equal(t, inOrder(orders), inOrder(effects), "G3: in its order (%s)", key)
		for at, id := range orders {
			if early(id) {
				require.LessOrEqual(t, slices.Index(effects, id), at, "G3: it can only be too early (%s)", key)
			}
		}
	}
	for n, o := range s.confirmed {
		if n < before || n >= after {
			require.True(t, has[o.ID], "G1: confirmed before the fork, or by the new database: %v", o)
		} else if !has[o.ID] {
			lost++
		}
	}
	require.Zero(t, s.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"), "G7: no fault here is that of a message")
	across := 0
	for _, is := range s.across {
		if is {
			across++
		}
	}
	t.Logf("%d orders, %d lost with the old database, %d handled across the replacement", len(has), lost, across)
	return lost
}

func (s *shop) column(t *testing.T, query, key string) (values []string) {
	t.Helper()
	rows, err := s.DB.QueryContext(t.Context(), s.Bind(query), key)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var value string
		require.NoError(t, rows.Scan(&value))
		values = append(values, value)
	}
	require.NoError(t, rows.Err())
	return values
}
