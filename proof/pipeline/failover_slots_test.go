package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// Standbys of PostgreSQL 17 and later keep the permanent slot. After a failover forwarders that read the log go on, with rows and without, and
// what waited in the log of the old primary alone is published. make test-versions runs it on versions 17 and 18.
func TestFailover_slots_of_PostgreSQL_G2_lose_nothing(t *testing.T) {
	t.Parallel()
	if version, err := testcluster.PostgresVersion(t.Context()); err == nil && version < 17 {
		t.Skipf("PostgreSQL 17 or later is missing: version %d cannot keep slots in a failover. make test-versions runs this test on 17 and 18", version)
	}
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	rows, log, waiting := newTailed(t, p, "rows_", false), newTailed(t, p, "log_", true), newTailed(t, p, "waiting_", true)
	all := []*tailed{rows, log, waiting}
	require.NoError(t, p.KeepSlots(t.Context()))
	require.NoError(t, p.Synchronize(t.Context()))
	for _, s := range all {
		s.start(t)
		s.publish(t, 20)
		s.delivered(t)
	}
	for deadline := time.Now().Add(slotPatience); ; {
		for _, s := range all {
			s.publish(t, 1)
			s.delivered(t)
		}
		kept, err := p.SlotsKept(t.Context())
		require.NoError(t, err)
		if kept {
			break
		}
		require.True(t, time.Now().Before(deadline), "the standbys keep the slots")
	}
	waiting.stop(t)
	for _, s := range all {
		s.publish(t, 20)
	}
	standby := waiting.on(t, "postgres://postgres@"+p.StandbyAddress()+"/postgres?sslmode=disable")
	status, err := pgtail.InspectOutbox(t.Context(), standby, pgtail.OutboxConfig{})
	require.NoError(t, err)
	require.True(t, status.Standby)
	require.True(t, status.Slot.Synced)
	require.Empty(t, status.Findings, "the standby is ready")

	require.NoError(t, p.Stop(true))
	p.Relay.Cut()
	require.NoError(t, p.Promote(t.Context()))
	p.Relay.Move(p.Address())
	waiting.start(t)
	for _, s := range all {
		s.publish(t, 20)
		s.delivered(t)
		s.stop(t)
	}
	require.Zero(t, waiting.stored(t), "what waited in the log was published, and nothing is left")
	for _, s := range []*tailed{log, waiting} {
		require.NoError(t, pgtail.CheckOutbox(t.Context(), s.database(), pgtail.OutboxConfig{DSN: p.DSN("postgres")}))
	}
}

// Standbys lag that have failover slots, and do not keep the slot of this forwarder. The server sends its log all the same, so the forwarder must not wait for
// them either: the server would keep its log for ever.
func TestFailover_slots_of_PostgreSQL_do_not_hold_up_a_slot_that_standbys_do_not_keep(t *testing.T) {
	t.Parallel()
	if version, err := testcluster.PostgresVersion(t.Context()); err == nil && version < 17 {
		t.Skipf("PostgreSQL 17 or later is missing: version %d cannot keep slots in a failover. make test-versions runs this test on 17 and 18", version)
	}
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	s := newTailed(t, p, "log_", true)
	require.NoError(t, pgtail.SetupOutbox(t.Context(), s.database(), pgtail.OutboxConfig{DSN: s.dsn, NoFailover: true}))
	require.NoError(t, p.KeepSlots(t.Context()))
	require.NoError(t, p.Sever(t.Context()))
	s.start(t)
	s.publish(t, 20)
	s.delivered(t)
	require.Eventually(t, func() bool {
		var is bool
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT s.confirmed_flush_lsn = '0/0'::pg_lsn + p.position FROM log_log_position p JOIN pg_replication_slots s ON s.slot_name = p.slot").Scan(&is))
		return is
	}, patience, testdb.PollPause, "the position is confirmed")
	s.stop(t)
}

// slotPatience is how long standbys may take, which look for slots every 30 s if nothing happens.
const slotPatience = 3 * time.Minute

// tailed is a producer and a forwarder that reads the log, on tables of their own.
type tailed struct {
	dsn         string
	db          *sql.DB
	prefix      string
	withoutRows bool
	outbox      *forwarder.Publisher
	fwd         *forwarder.Forwarder
	ended       chan error

	hanging atomic.Bool // a call hangs

	mu      sync.Mutex
	sent    []string
	got     []string        // each id once, in the order in which it came first
	calls   []string        // each id as often as it came
	release <-chan struct{} // calls hang until it is closed; may be nil
}

func newTailed(t *testing.T, p *testcluster.Postgres, prefix string, withoutRows bool) *tailed {
	t.Helper()
	s := &tailed{dsn: p.DSN("postgres"), prefix: prefix, withoutRows: withoutRows}
	s.db = behind(t, postbox.PostgreSQL, "postgres", s.dsn).DB
	require.NoError(t, postbox.Migrate(t.Context(), s.database()))
	if withoutRows {
		require.NoError(t, pgtail.SetupOutbox(t.Context(), s.database(), pgtail.OutboxConfig{DSN: s.dsn}))
	} else {
		require.NoError(t, pgtail.Setup(t.Context(), s.database(), ""))
	}
	var err error
	s.outbox, err = forwarder.NewPublisher(s.database(), forwarder.PublisherConfig{Log: withoutRows, AllowAutocommit: true}, nil)
	require.NoError(t, err)
	return s
}

func (s *tailed) database() postbox.Database {
	return postbox.Database{DB: s.db, Dialect: postbox.PostgreSQL, Prefix: s.prefix}
}

// on is the same tables at another address.
func (s *tailed) on(t *testing.T, dsn string) postbox.Database {
	t.Helper()
	database := s.database()
	database.DB = behind(t, postbox.PostgreSQL, "postgres", dsn).DB
	return database
}

func (s *tailed) start(t *testing.T) {
	t.Helper()
	var config forwarder.Config
	var err error
	if s.withoutRows {
		config.Tail, err = pgtail.NewOutbox(pgtail.OutboxConfig{DSN: s.dsn})
	} else {
		config.Tail, err = pgtail.New(pgtail.Config{DSN: s.dsn})
	}
	require.NoError(t, err)
	s.fwd, err = forwarder.New(s.database(), s, config, &errorLog{})
	require.NoError(t, err)
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.fwd.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() { _ = s.fwd.Close() })
}

func (s *tailed) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, s.fwd.Close())
	require.NoError(t, <-s.ended)
}

// publish commits messages of one key.
func (s *tailed) publish(t *testing.T, n int) {
	t.Helper()
	for range n {
		id := fmt.Sprintf("%s%04d", s.prefix, len(s.sent))
		m := message.NewMessage(id, nil)
		m.Metadata.Set(postbox.OrderingKey, "key")
		require.Eventually(t, func() bool { return s.outbox.Publish("orders", m) == nil }, patience, testdb.PollPause, "the pool finds the new primary")
		s.sent = append(s.sent, id)
	}
}

// delivered waits until everything is published, in order.
func (s *tailed) delivered(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for ticker := time.NewTicker(testdb.PollPause); ; {
		s.mu.Lock()
		got := slices.Clone(s.got)
		s.mu.Unlock()
		if len(got) == len(s.sent) {
			ticker.Stop()
			require.Equal(t, s.sent, got)
			return
		}
		select {
		case <-ticker.C:
		case err := <-s.ended:
			require.FailNow(t, "the forwarder has ended", "%v", err)
		case <-deadline:
			require.FailNow(t, "not everything was published", "%s: %d of %d", s.prefix, len(got), len(s.sent))
		}
	}
}

// stored is the number of rows of messages.
func (s *tailed) stored(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+s.prefix+"messages").Scan(&n))
	return n
}

// hang lets calls hang until a channel is closed.
func (s *tailed) hang(release <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release = release
}

// Publish notes the messages: the forwarder publishes to it.
func (s *tailed) Publish(_ string, messages ...*message.Message) error {
	s.mu.Lock()
	release := s.release
	s.mu.Unlock()
	if release != nil {
		s.hanging.Store(true)
		<-release
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		s.calls = append(s.calls, m.UUID)
		if !slices.Contains(s.got, m.UUID) {
			s.got = append(s.got, m.UUID)
		}
	}
	return nil
}

// Close does nothing.
func (s *tailed) Close() error { return nil }
