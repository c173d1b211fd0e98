package dashboard

import (
	"context"
	"sync"
	"testing"
)

// An action that begins while the handler is closed is stopped, or does not begin. So Close
// returns.
func TestBackground_an_action_that_begins_while_it_is_closed_is_stopped(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		actions := background{runs: map[int64]*bulkRun{}}
		var racing sync.WaitGroup
		racing.Go(func() {
			_ = actions.start(t.Context(), &bulkRun{}, func(ctx context.Context) { <-ctx.Done() })
		})
		actions.close()
		racing.Wait()
		actions.running.Wait()
	}
}
