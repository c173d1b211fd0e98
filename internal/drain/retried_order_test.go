package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// settlesItself is a handler that settles in a transaction of its own, as a transactional queue
// does.
type settlesItself struct {
	recorder
	b       *bench
	between func(m *spool.Message) // after the commit, before the drainer hears of it
}

func (s *settlesItself) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := s.recorder.Handle(ctx, batch)
	for i, m := range batch {
		if outcomes[i].Verdict != spool.Done {
			continue
		}
		err := spool.InTx(ctx, s.b.Database.DB, s.b.Statements, func(tx *sql.Tx) error {
			return spool.Settle(ctx, tx, spool.Directly, []*spool.Message{m})
		})
		if err != nil {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone, Err: err}
			continue
		}
		s.between(m)
		outcomes[i] = spool.Outcome{Verdict: spool.Settled}
	}
	return outcomes
}

// A message that was retried is gone with its handler's commit. What stood behind it, and was
// passed over while it waited, must be read before what comes after that commit.
func TestDrainer_G3_messages_behind_a_retried_one_go_before_later_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &settlesItself{b: b}
		handler.do = func(m *spool.Message) error {
			if m.MessageID == "1" && handler.tried("1") == 0 {
				return errTest
			}
			return nil
		}
		handler.between = func(m *spool.Message) {
			if m.MessageID == "1" {
				b.Append(database.DB, draft("3", "key"))
				b.Append(database.DB, draft("other last", "other"))
				b.Eventually(func() bool { return slices.Contains(handler.ids(), "other last") }, "the drainer reads")
			}
		}
		c := config("one")
		c.BatchSize, c.PollMax = 1, 5*time.Millisecond
		c.Retry = retries.WithDefaults(postbox.RetryProfile{Base: 400 * time.Millisecond, Cap: 400 * time.Millisecond, Jitter: -1}, 3)
		b.Append(database.DB, draft("1", "key"))
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return handler.tried("1") == 1 }, "the first one fails")
		b.Append(database.DB, draft("2", "key"))
		const reads = 4 // what the drainer reads meanwhile moves its watermark past the second one
		for n := range reads {
			other := fmt.Sprintf("other %d", n)
			b.Append(database.DB, draft(other, "other"))
			b.Eventually(func() bool { return slices.Contains(handler.ids(), other) }, "the drainer reads")
			<-time.After(30 * time.Millisecond) // longer than the interval between two marks of the watermark
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all is settled")
		ofKey := slices.DeleteFunc(handler.ids(), func(id string) bool { return len(id) > 1 })
		require.Equal(t, []string{"1", "2", "3"}, ofKey)
	})
}
