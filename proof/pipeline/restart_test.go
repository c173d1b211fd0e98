package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// forgetful is a server that confirms commits before they are on its disk, and crashes.
type forgetful struct {
	*testdb.Database
	relay *testcluster.Relay
	// direct leads past the relay.
	direct  *testdb.Database
	address string
	// forget keeps what is committed from now on from the disk, and crash loses it: the server is
	// back when it returns.
	forget, crash func()
}

func eachForgetful(t *testing.T, test func(t *testing.T, server forgetful)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		p, err := testcluster.StartPostgres(t.Context())
		clustertest.Require(t, p, err)
		direct := behind(t, postbox.PostgreSQL, "pgx", p.PrimaryDSN("postgres"))
		direct.Exec(t, "ALTER DATABASE postgres SET synchronous_commit = off")
		s := forgetful{Database: behind(t, postbox.PostgreSQL, "pgx", p.DSN("postgres")), relay: p.Relay, direct: direct, address: p.Address()}
		var writer int // of the log
		s.forget = func() {
			s.Exec(t, "CHECKPOINT")
			writer = s.Count(t, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
			require.NoError(t, syscall.Kill(writer, syscall.SIGSTOP))
		}
		s.crash = func() { // the postmaster goes on
			require.NoError(t, syscall.Kill(writer, syscall.SIGKILL))
			require.Eventually(t, func() bool {
				var pid int
				query := "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
				return direct.DB.QueryRowContext(t.Context(), query).Scan(&pid) == nil && pid != writer
			}, patience, testdb.PollPause)
		}
		test(t, s)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		m, err := testcluster.StartMariaDB(t.Context())
		clustertest.Require(t, m, err)
		s := forgetful{Database: behind(t, postbox.MySQL, "mysql", m.DSN("postbox")), relay: m.Relay, address: m.Address()}
		s.direct = behind(t, postbox.MySQL, "mysql", strings.Replace(s.DSN, m.Relay.Address(), m.Address(), 1))
		s.forget = func() {
			s.Exec(t, "SET GLOBAL innodb_flush_log_at_timeout = 2700")
			s.Exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
		}
		s.crash = func() {
			require.NoError(t, m.Stop())
			require.NoError(t, m.Restart(t.Context()))
		}
		test(t, s)
	})
}

// counts waits until the server answers a query with that number.
func (s forgetful) counts(t *testing.T, query string, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		return s.DB.QueryRowContext(t.Context(), query).Scan(&n) == nil && n == want
	}, patience, testdb.PollPause)
}

// A server that crashes loses the effect of a handler that is still running. Then the message is
// not done when the handler returns, although it is the same server, with the same tables.
func TestRestart_G2_a_message_whose_effect_was_lost_runs_again(t *testing.T) {
	t.Parallel()
	eachForgetful(t, func(t *testing.T, s forgetful) {
		handledBeforeAndSettledAfter(t, s.Database, s.forget, func() {
			s.crash()
			s.counts(t, "SELECT COUNT(*) FROM effects", 0)
		})
	})
}

// A server that crashes gives ids again. Messages with such ids are published in their order, also
// if producers have stored so many before the forwarder reads again that no id is below those it
// knew.
func TestRestart_G3_messages_with_ids_that_were_given_before_keep_their_order(t *testing.T) {
	t.Parallel()
	eachForgetful(t, func(t *testing.T, s forgetful) {
		s.Migrate(t)
		broker := &inOrder{}
		f, err := forwarder.New(s.Postbox(), broker, forwarder.Config{}, nil)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		publish := func(database *testdb.Database, of string, n int) (ids []string) {
			producer, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, producer.Close()) }()
			messages := make([]*message.Message, n)
			for i := range messages {
				messages[i] = message.NewMessage(fmt.Sprintf("%s-%03d", of, i), nil)
				messages[i].Metadata.Set(postbox.MetadataOrderingKey, "key")
				ids = append(ids, messages[i].UUID)
			}
			for _, m := range messages {
				require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
					m.SetContext(ctx)
					return producer.Publish("orders", m)
				}))
			}
			return ids
		}
		published := func(n int) {
			require.Eventually(t, func() bool { return len(broker.all()) >= n }, patience, testdb.PollPause)
			s.counts(t, "SELECT COUNT(*) FROM postbox_messages", 0)
		}
		publish(s.Database, "kept", 50)
		published(50)
		s.forget()
		publish(s.Database, "lost", 400)
		published(450)

		s.relay.Cut()
		s.crash()
		after := publish(s.direct, "after", 600)
		s.relay.Move(s.address)
		published(1050)
		got := slices.DeleteFunc(broker.all()[450:], func(id string) bool { return strings.HasPrefix(id, "lost") }) // the log is written each second: one may have stayed whose removal is lost
		require.Len(t, got, len(after))
		require.True(t, slices.IsSorted(got), "published in the order in which they were stored, %s first", got[0])
		stop()
		require.NoError(t, <-ended)
	})
}

// inOrder is a broker that notes what is published.
type inOrder struct {
	mu  sync.Mutex
	ids []string
}

func (b *inOrder) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		b.ids = append(b.ids, m.UUID)
	}
	return nil
}

func (b *inOrder) Close() error { return nil }

func (b *inOrder) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.ids...)
}
