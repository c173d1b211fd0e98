package drain_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	patience = enginetest.Patience
	lanes    = enginetest.Lanes
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
		outcomes[i] = drain.OutcomeOf(err)
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

// bench is a spool on a database, with drainers.
type bench struct{ *enginetest.Bench }

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	return &bench{enginetest.NewBench(t, database)}
}

func newUnmigratedBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	return &bench{enginetest.NewUnmigratedBench(t, database)}
}

func draft(id, key string) spool.Draft { return enginetest.Draft(id, key) }

func drafts(n int, key func(i int) string) []spool.Draft { return enginetest.Drafts(n, key) }

func config(holder string) drain.Config {
	return drain.Config{
		Identity: drain.Identity{Holder: holder, Process: "test"},
		Amounts:  drain.Amounts{PageSize: 50, InlineBytes: 1 << 10, Workers: 4, BatchSize: 3},
		Times:    drain.Times{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, Lease: 5 * time.Second, Renew: 100 * time.Millisecond, Close: 5 * time.Second},
		Retry:    retries.WithDefaults(postbox.RetryProfile{Base: 10 * time.Millisecond, Cap: 50 * time.Millisecond}, 3),
	}
}

// running is a drainer under way.
type running struct {
	*drain.Drainer
	cancel context.CancelFunc
	done   chan error
}

func (b *bench) start(db *sql.DB, handler drain.Handler, config drain.Config) *running {
	b.T.Helper()
	own := spool.New(b.Statements, b.Spool.Name())
	return b.run(drain.New(db, own, handler, config, watermill.NopLogger{}))
}

// run runs a drainer until the test ends.
func (b *bench) run(drainer *drain.Drainer) *running {
	b.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Drainer: drainer, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- r.Run(ctx) }()
	b.T.Cleanup(func() {
		r.cancel()
		if err := <-r.done; err != nil {
			b.T.Error(err)
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

var errTest = errors.New("handler says no")
