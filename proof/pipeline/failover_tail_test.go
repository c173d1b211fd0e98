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

// A slot of a reader ends with its server. After a failover the forwarder polls until it has
// another one, and nothing is lost.
func TestFailover_G2_of_a_server_whose_log_is_read_loses_nothing(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	s := newTailed(t, p, "rows_")
	require.NoError(t, p.Synchronize(t.Context()))
	s.start(t)
	s.publish(t, 20)
	s.delivered(t)
	s.publish(t, 20)
	require.NoError(t, p.Stop(true))
	p.Relay.Cut()
	require.NoError(t, p.Promote(t.Context()))
	p.Relay.Move(p.Address())
	s.publish(t, 20)
	s.delivered(t)
	s.stop(t)
}

// tailed is a producer and a forwarder that reads the log, on tables of their own.
type tailed struct {
	dsn    string
	db     *sql.DB
	prefix string
	outbox *forwarder.Publisher
	fwd    *forwarder.Forwarder
	ended  chan error

	hanging atomic.Bool // a call hangs

	mu      sync.Mutex
	sent    []string
	got     []string        // each id once, in the order in which it came first
	calls   []string        // each id as often as it came
	release <-chan struct{} // calls hang until it is closed; may be nil
}

func newTailed(t *testing.T, p *testcluster.Postgres, prefix string) *tailed {
	t.Helper()
	s := &tailed{dsn: p.DSN("postgres"), prefix: prefix}
	s.db = behind(t, postbox.PostgreSQL, "postgres", s.dsn).DB
	require.NoError(t, postbox.Migrate(t.Context(), s.database()))
	require.NoError(t, pgtail.Setup(t.Context(), s.database(), ""))
	var err error
	s.outbox, err = forwarder.NewPublisher(s.database(), forwarder.PublisherConfig{AllowAutocommit: true}, nil)
	require.NoError(t, err)
	return s
}

func (s *tailed) database() postbox.Database {
	return postbox.Database{DB: s.db, Dialect: postbox.PostgreSQL, Prefix: s.prefix}
}

func (s *tailed) start(t *testing.T) {
	t.Helper()
	reader, err := pgtail.New(pgtail.Config{DSN: s.dsn})
	require.NoError(t, err)
	s.fwd, err = forwarder.New(s.database(), s, forwarder.Config{Tail: reader}, &errorLog{})
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
		m.Metadata.Set(postbox.MetadataOrderingKey, "key")
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
