package spool_test

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

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	patience = 20 * time.Second
	lanes    = 8
)

// recorder is a handler that remembers what it handled, and does as the test says.
type recorder struct {
	mu       sync.Mutex
	handled  []string // message ids, in the order in which handling ended
	attempts map[string]int
	excluded []string
	do       func(m *spool.Message) error
}

func (r *recorder) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	failed := map[string]bool{}
	for i, m := range batch {
		if m.HasKey && failed[m.Key] {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
			continue
		}
		var err error
		if r.do != nil {
			err = r.do(m)
		}
		outcomes[i] = spool.OutcomeOf(err)
		failed[m.Key] = err != nil
		r.mu.Lock()
		if r.attempts == nil {
			r.attempts = map[string]int{}
		}
		r.attempts[m.MessageID]++
		if err == nil {
			r.handled = append(r.handled, m.MessageID)
		}
		r.mu.Unlock()
	}
	return outcomes
}

func (r *recorder) Excluded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.excluded)
}

func (r *recorder) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.handled)
}

func (r *recorder) tried(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[id]
}

// bench is a spool on a database, with what a test needs around it.
type bench struct {
	t          *testing.T
	database   *testdb.Database
	statements *dialect.Statements
	spool      *spool.Spool
	historyID  int
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	return newUnmigratedBench(t, database.Migrate(t))
}

func newUnmigratedBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	names, err := dialect.NewNames("", "", "")
	require.NoError(t, err)
	statements, err := dialect.New(dialect.Kind(database.Dialect), names)
	require.NoError(t, err)
	return &bench{t: t, database: database, statements: statements, spool: spool.New(statements, "outbox"+t.Name(), lanes)}
}

func (b *bench) append(db spool.Executor, drafts ...spool.Draft) {
	b.t.Helper()
	require.NoError(b.t, b.spool.Append(b.t.Context(), db, spool.Run, drafts))
}

func draft(id, key string) spool.Draft {
	return spool.Draft{Topic: "orders", MessageID: id, Key: key, Payload: []byte(`{"id":"` + id + `"}`)}
}

func drafts(n int, key func(i int) string) []spool.Draft {
	list := make([]spool.Draft, n)
	for i := range list {
		list[i] = draft(fmt.Sprintf("%05d", i), key(i))
	}
	return list
}

func config(holder string) spool.Config {
	return spool.Config{
		Holder: holder, Process: "test", PageSize: 50, InlineBytes: 1 << 10, Workers: 4, BatchSize: 3,
		PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, Lease: 5 * time.Second, Renew: 100 * time.Millisecond,
		Retry: postbox.RetryProfile{Base: 10 * time.Millisecond, Cap: 50 * time.Millisecond}.WithDefaults(3), Close: 5 * time.Second,
	}
}

// running is a drainer under way.
type running struct {
	*spool.Drainer
	cancel context.CancelFunc
	done   chan error
}

func (b *bench) start(db *sql.DB, handler spool.Handler, config spool.Config) *running {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	own := spool.New(b.statements, b.spool.Name(), lanes)
	r := &running{
		Drainer: spool.NewDrainer(db, own, handler, config, watermill.NopLogger{}),
		cancel:  cancel, done: make(chan error, 1),
	}
	go func() { r.done <- r.Run(ctx) }()
	b.t.Cleanup(func() {
		r.cancel()
		if err := <-r.done; err != nil {
			b.t.Error(err)
		}
	})
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		require.NoError(t, err)
		r.done <- nil
	case <-time.After(patience):
		require.FailNow(t, "the drainer does not stop")
	}
}

func (b *bench) eventually(condition func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, 2*time.Millisecond, what)
}

func (b *bench) pending() int {
	b.t.Helper()
	return b.database.Count(b.t, "SELECT COUNT(*) FROM postbox_messages")
}

func (b *bench) dead() int {
	b.t.Helper()
	return b.database.Count(b.t, "SELECT COUNT(*) FROM postbox_dead_letters")
}

var errTest = errors.New("handler says no")
