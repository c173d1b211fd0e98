package spool

import (
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// What stands behind a message is read again when it has given its key free, and not while it goes on waiting: a key that
// is stuck for long has much behind it.
func TestForget_reads_again_what_a_retried_message_has_given_free(t *testing.T) {
	t.Parallel()
	const read = 100 // up to there
	for name, c := range map[string]struct {
		outcome  Outcome
		attempts int
		head     HeadPolicy
		from     int64
	}{
		"done":                         {outcome: Outcome{Verdict: Done}, from: 6},
		"settled by its handler":       {outcome: Outcome{Verdict: Settled}, from: 6},
		"without an outcome":           {outcome: Outcome{Verdict: Postpone}, from: 6},
		"failed again":                 {outcome: Outcome{Verdict: Retry}, from: read},
		"waits without an attempt":     {outcome: Outcome{Verdict: Wait}, attempts: 2, from: read},
		"failed for the last time":     {outcome: Outcome{Verdict: Retry}, attempts: 2, from: 6},
		"failed once more, and blocks": {outcome: Outcome{Verdict: Retry}, attempts: 2, head: HeadBlock, from: read},
		"dead":                         {outcome: Outcome{Verdict: Dead}, from: 6},
		"dead, and is parked":          {outcome: Outcome{Verdict: Dead}, head: HeadPark, from: read},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &Drainer{lanes: held(0), scheduler: newScheduler(1, nil)}
			d.config.Retry, d.config.Head = postbox.RetryProfile{Attempts: 3}, c.head
			d.lanes.held[1].hint = read
			retried := ofLane(7, 3)
			retried.Ref.State, retried.Attempts = dialect.StateRetrying, c.attempts
			d.forget([]*entry{{message: retried, queue: &queue{}, outcome: c.outcome}})
			require.Equal(t, c.from, d.lanes.held[1].hint)
		})
	}
}
