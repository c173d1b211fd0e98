package cleanup_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// bench is a spool on a database, with old rows and cleaners.
type bench struct {
	*enginetest.Bench
	historyID int
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	return &bench{Bench: enginetest.NewBench(t, database)}
}

func newUnmigratedBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	return &bench{Bench: enginetest.NewUnmigratedBench(t, database)}
}

// taker is a handler that takes all messages, but for some topics.
type taker struct{ excluded []string }

func (taker) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	return make([]spool.Outcome, len(batch))
}

func (t taker) Excluded() []string { return t.excluded }

// drain runs a drainer of the spool, which keeps what is done for that long. It ends with the test,
// or before that by stop.
func (b *bench) drain(holder string, handler taker, history time.Duration) (d *drain.Drainer, stop func()) {
	b.T.Helper()
	d = drain.New(b.Database.DB, spool.New(b.Statements, b.Spool.Name()), handler, drain.Config{
		Identity: drain.Identity{Holder: holder, Process: "test"},
		Amounts:  drain.Amounts{PageSize: 50, InlineBytes: 1 << 10, Workers: 4, BatchSize: 3},
		Times:    drain.Times{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, Lease: 5 * time.Second, Renew: 100 * time.Millisecond, Close: 5 * time.Second},
		History:  history,
	}, watermill.NopLogger{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.T.Error(err)
		}
	})
	b.T.Cleanup(stop)
	return d, stop
}
