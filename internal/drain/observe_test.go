package drain_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// ends is an observer that counts what it hears.
type ends struct {
	mu    sync.Mutex
	heard map[string]int // by message id and end
}

func (e *ends) Ended(m *spool.Message, end drain.End) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[fmt.Sprint(m.MessageID, " ", end)]++
}

func (e *ends) all() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.heard)
}

func TestDrainer_tells_an_observer_how_each_message_ended(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for head, last := range map[drain.HeadPolicy]drain.End{drain.HeadSkip: drain.EndDead, drain.HeadPark: drain.EndParked} {
			b := newBench(t, database)
			b.Append(database.DB, draft("early", ""), draft("good", ""), draft("fails twice", ""), draft("bad", ""))
			handler := &recorder{}
			handler.do = func(m *spool.Message) error {
				switch tried := handler.tried(m.MessageID); {
				case m.MessageID == "fails twice" && tried < 2:
					return errTest
				case m.MessageID == "bad":
					return postbox.Permanent(errTest)
				}
				return nil
			}
			observer := &ends{heard: map[string]int{}}
			c := config("one")
			c.Observer, c.Head = observer, head
			r := b.start(database.DB, &early{recorder: handler}, c)
			want := map[string]int{
				fmt.Sprint("good ", drain.EndDone):         1,
				fmt.Sprint("fails twice ", drain.EndRetry): 2,
				fmt.Sprint("fails twice ", drain.EndDone):  1,
				fmt.Sprint("bad ", last):                   1,
				fmt.Sprint("early ", drain.EndWait):        1,
				fmt.Sprint("early ", drain.EndDone):        1,
			}
			b.Eventually(func() bool { return len(observer.all()) == len(want) }, "all is heard")
			r.stop(t)
			require.Equal(t, want, observer.all())
			database.Exec(t, "DELETE FROM postbox_messages")
			database.Exec(t, "DELETE FROM postbox_dead_letters")
		}
	})
}

// early is a recorder to which the message "early" comes too early, once.
type early struct {
	*recorder
	came atomic.Bool
}

func (e *early) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	if batch[0].MessageID == "early" && e.came.CompareAndSwap(false, true) {
		outcomes := make([]spool.Outcome, len(batch)) // the others come again, too, and nothing is heard of that
		for i := range outcomes {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
		}
		outcomes[0] = spool.Outcome{Verdict: spool.Wait, After: time.Millisecond}
		return outcomes
	}
	return e.recorder.Handle(ctx, batch)
}
